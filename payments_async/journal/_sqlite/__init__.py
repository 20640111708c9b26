"""What is SQLite's alone, or this machine's: the file, the thread that writes it, who it is, and what is remembered."""
