"""What a journal asks of its tables, by noun: SQL, and records made of what it answers.

None of these modules opens, begins or commits anything, and none knows a file. A journal on another database takes
over all that lies above them as it is (``contract``, the records, the table of states, ``_weighing``), says the same
as they do in its own SQL, and has a folder of its own in place of ``_sqlite``.
"""
