"""What a journal asks of its tables, by noun: SQL, and records made of what it answers.

None of these modules opens, begins or commits anything, and none knows a file or a server: they are written once, for
every database. ``_database`` says in which words, and what they need of one.
"""
