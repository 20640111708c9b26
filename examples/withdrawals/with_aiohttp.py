"""Withdrawals in an aiohttp application: each is paid once, whatever dies meanwhile, and the balance follows.

    payments-async sandbox --ipn-url http://127.0.0.1:8000/ipn
    python examples/withdrawals/with_aiohttp.py 8000
    curl 127.0.0.1:8000/withdrawals \
        -d '{"id": "w-1", "customer": "grace", "phone_number": "+256772000017", "amount": 5000}'
    curl 127.0.0.1:8000/withdrawals/w-1

Settings come from the environment; untold, they are those of the sandbox. Who may ask for whose money is yours to say.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import closing

from aiohttp import web
from ledger import HEARD, Ledger, Refused, Withdrawal

from payments_async import Credentials, Entry, Payments, PaymentsSession, Receiver
from payments_async.ipn import DOCUMENTED_SENDERS, serve
from payments_async.journal import journal_at


class Withdrawals:
    """What the application answers."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.ledger = Ledger(settings.get("WITHDRAWALS_DATABASE", "withdrawals.sqlite"))
        journal = journal_at(settings.get("PAYMENTS_JOURNAL", "payments.sqlite"))
        credentials = Credentials(
            app_key=settings.get("PAYMENTS_APP_KEY", "demo-app-key"),
            app_password=settings.get("PAYMENTS_APP_PASSWORD", "demo-app-password"),
            user_id=settings.get("PAYMENTS_USER_ID", "demo-user"),
        )
        session = PaymentsSession(settings.get("PAYMENTS_BASE_URL", "http://127.0.0.1:7027"), credentials)
        is_sandbox = session.base_url.startswith("http://")  # the service itself has https alone
        receiver = Receiver(journal, ["127.0.0.1"] if is_sandbox else DOCUMENTED_SENDERS)
        self.payments = Payments(session, journal, receiver=receiver)
        self.payments.on(*HEARD)(self.told)

    async def told(self, entry: Entry) -> None:
        """A withdrawal came to one of the states that are heard of."""
        self.ledger.note(entry)

    async def run(self, _: web.Application) -> AsyncIterator[None]:
        """Work as long as the application runs."""
        with closing(self.ledger):
            async with self.payments:
                for wish in self.ledger.unfinished():  # some may never have been put; the others are not paid again
                    await self.payments.put(wish.order())
                yield

    async def withdraw(self, request: web.Request) -> web.Response:
        """Take a withdrawal; the customer may ask again until this was answered."""
        try:
            wish = Withdrawal(**await request.json())
        except (TypeError, ValueError) as error:
            raise web.HTTPUnprocessableEntity(text=str(error)) from error
        try:
            self.ledger.request(wish)
        except Refused as error:
            raise web.HTTPConflict(text=str(error)) from error
        await self.payments.put(wish.order())  # also where it was asked for before: that changes nothing
        return web.json_response({"id": wish.id, "state": self.ledger.state_of(wish.id)}, status=202)

    async def show(self, request: web.Request) -> web.Response:
        """Tell where a withdrawal stands."""
        request_id = request.match_info["request_id"]
        state = self.ledger.state_of(request_id)
        if state is None:
            raise web.HTTPNotFound(text="nobody asked for that")
        return web.json_response({"id": request_id, "state": state})

    async def health(self, _: web.Request) -> web.Response:
        """Tell the load balancer that customers may come, and everybody else how it goes."""
        found = await self.payments.outbox.health()  # an error, and so 500, where the journal cannot be read
        # paused is no reason to send customers elsewhere: what they ask for is taken, and sent when it is resumed
        problems = {one.code: one.what for one in found.problems}
        facts = {"problems": problems, "counts": dict(found.progress.counts)}
        return web.json_response({"sends": found.is_well, **facts})


def application(settings: Mapping[str, str] = os.environ) -> web.Application:
    """The whole of it. Several processes may serve it, with the same files."""
    withdrawals, app = Withdrawals(settings), web.Application()
    app.cleanup_ctx.append(withdrawals.run)
    withdrawals.payments.mount(app, "/ipn")
    app.router.add_post("/withdrawals", withdrawals.withdraw)
    app.router.add_get("/withdrawals/{request_id}", withdrawals.show)
    app.router.add_get("/health", withdrawals.health)
    return app


if __name__ == "__main__":
    asyncio.run(serve(application(), port=int(sys.argv[1]), stop_on=[signal.SIGTERM, signal.SIGINT]))
