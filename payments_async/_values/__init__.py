"""Leaves: exact amounts, frozen data, checks, masking, request ids, deadlines, tasks, the error tree."""
