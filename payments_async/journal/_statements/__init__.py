"""What a journal asks of its tables, by noun. None of it opens, begins or commits anything."""
