"""A journal in one SQLite file: the file itself, the thread that writes it, and who it is."""
