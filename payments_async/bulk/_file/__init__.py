"""A batch file: its bytes, its rows in any of three formats, and each row as an order or as what is wrong with it."""
