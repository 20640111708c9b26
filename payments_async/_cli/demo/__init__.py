"""What `payments-async demo` is made of: its folder, its service, its run, the ledger that judges it."""
