"""`payments-async bulk`: batches of payouts from a file."""
