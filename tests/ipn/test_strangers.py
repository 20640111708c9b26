"""Notifications that nobody should believe: of another order, or from a sender who could not prove who he is."""

import pytest
from ipn.faces import FACES, Face
from ipn.notifications import is_signed, notification

from payments_async.ipn import Receiver, ReceiverSettings, TransactionEvent

LOCAL = ["127.0.0.1"]


@pytest.mark.parametrize("face", FACES)
async def test_who_could_not_prove_it_is_only_reported_in_shadow(face: str) -> None:
    """The address is a known one, the signature is missing: answered, told, and heard by nobody."""
    heard, told = list[TransactionEvent](), list[str]()
    receiver = Receiver(
        senders=LOCAL,
        settings=ReceiverSettings(
            shadow=True, reported=lambda event, sender: told.append(f"{event.transaction_id} from {sender}")
        ),
        verifiers=[is_signed],
    )

    @receiver.on(TransactionEvent)
    async def hear(event: TransactionEvent) -> None:
        heard.append(event)

    async with FACES[face](receiver) as send:
        assert 200 == (await send(notification("a"))).status
    assert ([], ["a from 127.0.0.1"]) == (heard, told)


async def told_of(send: Face, receiver: Receiver, request_id: str) -> TransactionEvent:
    """What whoever waits for transaction a of an order hears, once it was notified as that of this order."""
    assert 200 == (await send(notification("a", RequestId=request_id))).status
    return await receiver.wait_for("r-1", timeout=0.05, transaction_id="a")


async def test_a_transaction_of_another_order_is_not_waited_for() -> None:
    """It has the id that the acceptance named, and yet another request id: it says nothing of ours."""
    receiver = Receiver(senders=LOCAL)
    async with FACES["aiohttp"](receiver) as send:
        with pytest.raises(TimeoutError):
            await told_of(send, receiver, "r-2")
    other = Receiver(senders=LOCAL)
    async with FACES["aiohttp"](other) as send:
        assert "a" == (await told_of(send, other, "r-1")).transaction_id
