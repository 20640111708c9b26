"""What became of a batch, as a table for spreadsheets and as a page to print."""
