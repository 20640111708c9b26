"""What makes a journal of the statements, whatever the database: the writing thread, and the promise kept with it."""
