"""A base address that begins with http:// where the port speaks TLS: the error says so, and blames no password."""

from __future__ import annotations

from pathlib import Path

import pytest
from ipn.nginx import INNER, needs_nginx, nginx
from ipn.ports import free_port

from payments_async import (
    Beneficiary,
    Credentials,
    MobileMoneyWallet,
    NotSent,
    PaymentsError,
    PaymentsSession,
    PayoutOrder,
    Rejected,
    RetryPolicy,
    ServiceFault,
)
from payments_async._wire.call import Call, Reply
from payments_async._wire.dialect import Dialect
from payments_async._wire.replies import read_anything, read_reply

WORDS = {
    "nginx": b"<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>",
    "Apache": b"<p>Reason: You're speaking plain HTTP to an SSL-enabled server port.<br /></p>",
    "Go": b"Client sent an HTTP request to an HTTPS server.\n",
}
WHO = Credentials(app_key="key", app_password="password", user_id="user")


@pytest.mark.parametrize("server", WORDS)
def test_each_server_has_its_words(server: str) -> None:
    """They are known by them; any other 400 is the service's own refusal."""
    call = Call(method="GET", path="/api/accounts", repeatable=True, read=read_anything)
    for body, kind in ((WORDS[server], ServiceFault), (b"<html>400 Bad Request</html>", Rejected)):
        with pytest.raises(PaymentsError) as told:
            read_reply(call, Reply(400, body), Dialect())
        assert (kind, kind is ServiceFault) == (type(told.value), "begin it with https://" in str(told.value))


@needs_nginx
async def test_behind_a_real_nginx(tmp_path: Path) -> None:
    """The order was surely not sent, for the login failed; the remedy is in the error."""
    order = PayoutOrder(
        request_id="r-1",
        amount="5000",
        product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        beneficiary=Beneficiary(name="Grace Akello"),
        destination=MobileMoneyWallet("+256772000017"),
    )
    async with (
        nginx(tmp_path / "nginx", upstream=free_port(), listen=INNER) as port,
        PaymentsSession(f"http://127.0.0.1:{port}", WHO, retry=RetryPolicy(attempts=1)) as payments,
    ):
        with pytest.raises(NotSent, match="begin it with https://"):
            await payments.payouts.send(order)
        with pytest.raises(ServiceFault, match="begin it with https://"):
            await payments.log_in()
