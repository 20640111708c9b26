"""What a batch would do, before anything is sent, and what speaks against it."""
