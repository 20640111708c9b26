"""What a machine keeps outside of its journals: which there are, how far each was, what its processes let out."""
