"""`payments-async ipn`: notifications."""
