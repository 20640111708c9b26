"""Settings of Django. The journal lies in the same PostgreSQL database as the application's own tables."""

import os
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

PAYMENTS = {  # those of the sandbox, and in place of them what the environment has
    "PAYMENTS_BASE_URL": "http://127.0.0.1:7027",
    "PAYMENTS_APP_KEY": "demo-app-key",
    "PAYMENTS_APP_PASSWORD": "demo-app-password",
    "PAYMENTS_USER_ID": "demo-user",
    "PAYMENTS_JOURNAL": "postgresql://127.0.0.1/bank",
    **os.environ,
}


def database(dsn: str) -> dict[str, Any]:
    """A database as Django has it, from a DSN."""
    told = urlsplit(dsn)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(told.path[1:]),
        "USER": unquote(told.username or ""),
        "PASSWORD": unquote(told.password or ""),
        "HOST": unquote(told.hostname or ""),
        "PORT": str(told.port or ""),
        "OPTIONS": dict(parse_qsl(told.query)),
    }


DATABASES = {"default": database(PAYMENTS["PAYMENTS_JOURNAL"])}
INSTALLED_APPS = ["bank"]
ROOT_URLCONF = "bank.views"
ALLOWED_HOSTS = ["*"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "for trying it out")
