"""What is SQLite's alone: the file, its tables, whether it is the one it was, and who has it open."""
