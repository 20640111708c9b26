"""A Django application that pays from its own transactions, on PostgreSQL.

export PAYMENTS_JOURNAL=postgresql://bank@127.0.0.1/bank   # your tables and the journal's, in one database
payments-async sandbox --ipn-url http://127.0.0.1:8081/ipn
python manage.py migrate --run-syncdb
python worker_of_bank.py                                   # sends, hears, and runs the handlers
gunicorn --workers 2 --threads 8                           # the views; gunicorn.conf.py opens the outbox
pytest                                                     # with a PostgreSQL of its own
"""

# mypy: disable-error-code="import-untyped"

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bank.settings")
    execute_from_command_line(sys.argv)
