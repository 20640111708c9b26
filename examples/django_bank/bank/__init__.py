"""A Django application whose customers withdraw money: debit and order are one transaction."""
