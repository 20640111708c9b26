"""Withdrawals in a FastAPI application: each is paid once, whatever dies meanwhile, and the balance follows.

    payments-async sandbox --ipn-url http://127.0.0.1:8000/ipn
    uvicorn --app-dir examples/withdrawals --factory --no-proxy-headers --no-access-log with_fastapi:application
    curl 127.0.0.1:8000/withdrawals -H "Content-Type: application/json" \
        -d '{"id": "w-1", "customer": "grace", "phone_number": "+256772000017", "amount": 5000}'
    curl 127.0.0.1:8000/withdrawals/w-1

Settings come from the environment; untold, they are those of the sandbox. Who may ask for whose money is yours to say.
"""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing

from fastapi import FastAPI, HTTPException
from ledger import HEARD, Ledger, Refused, Withdrawal

from payments_async import Credentials, Entry, Payments, PaymentsSession, Receiver
from payments_async.ipn import DOCUMENTED_SENDERS
from payments_async.journal import journal_at


def application(settings: Mapping[str, str] = os.environ) -> FastAPI:
    """The whole of it. Several processes may serve it, with the same files."""
    ledger = Ledger(settings.get("WITHDRAWALS_DATABASE", "withdrawals.sqlite"))
    journal = journal_at(settings.get("PAYMENTS_JOURNAL", "payments.sqlite"))
    credentials = Credentials(
        app_key=settings.get("PAYMENTS_APP_KEY", "demo-app-key"),
        app_password=settings.get("PAYMENTS_APP_PASSWORD", "demo-app-password"),
        user_id=settings.get("PAYMENTS_USER_ID", "demo-user"),
    )
    session = PaymentsSession(settings.get("PAYMENTS_BASE_URL", "http://127.0.0.1:7027"), credentials)
    is_sandbox = session.base_url.startswith("http://")  # the service itself has https alone
    receiver = Receiver(journal, ["127.0.0.1"] if is_sandbox else DOCUMENTED_SENDERS)
    payments = Payments(session, journal, receiver=receiver)

    @payments.on(*HEARD)
    async def told(entry: Entry) -> None:
        ledger.note(entry)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with closing(ledger):
            async with payments:
                for wish in ledger.unfinished():  # some may never have been put; the others are not paid again
                    await payments.put(wish.order())
                yield

    app = FastAPI(lifespan=lifespan)
    payments.mount(app, "/ipn")

    @app.post("/withdrawals", status_code=202)
    async def withdraw(wish: Withdrawal) -> dict[str, str]:
        try:
            ledger.request(wish)
        except Refused as error:
            raise HTTPException(409, str(error)) from error
        await payments.put(wish.order())  # also where it was asked for before: that changes nothing
        return await show(wish.id)

    @app.get("/withdrawals/{request_id}")
    async def show(request_id: str) -> dict[str, str]:
        state = ledger.state_of(request_id)
        if state is None:
            raise HTTPException(404, "nobody asked for that")
        return {"id": request_id, "state": state}

    @app.get("/health")
    async def health() -> dict[str, object]:
        found = await payments.outbox.health()  # an error, and so 500, where the journal cannot be read
        # paused is no reason to send customers elsewhere: what they ask for is taken, and sent when it is resumed
        problems = {one.code: one.what for one in found.problems}
        return {"sends": found.is_well, "problems": problems, "counts": found.progress.counts}

    return app
