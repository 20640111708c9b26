"""What gunicorn does in each worker: open the outbox after the fork, and close it at the end."""

from contextlib import ExitStack
from typing import Any

wsgi_app = "django.core.wsgi:get_wsgi_application()"
raw_env = ["DJANGO_SETTINGS_MODULE=bank.settings"]
opened = ExitStack()


def post_worker_init(worker: Any) -> None:
    """Open it in this process: a fork shares no open outbox."""
    from bank.payments import payments

    opened.enter_context(payments().in_thread())


def worker_exit(server: Any, worker: Any) -> None:
    """Close it."""
    opened.close()
