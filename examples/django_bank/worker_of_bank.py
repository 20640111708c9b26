"""The process that sends what the views put, takes notifications at /ipn, and runs the handlers. SIGTERM ends it."""

# mypy: disable-error-code="import-untyped"

import asyncio
import os
import signal

import django

from payments_async.ipn import serve


async def main() -> None:
    """Work until SIGTERM or Ctrl-C."""
    from bank.payments import payments

    async with payments(works=True) as opened:
        await serve(opened.receiver, port=int(os.environ.get("IPN_PORT", "8081")), stop_on=[signal.SIGTERM])


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bank.settings")
    django.setup()
    asyncio.run(main())
