"""What each simulation would import and make at its first use; for a process that forks many."""

from __future__ import annotations

import importlib

import attrs

from payments_async._values.testing import Testing
from payments_async._wire import codec
from payments_async._wire.dialect import Dialect
from payments_async._wire.models import Transaction
from payments_async.journal import Entry, Happening, ListScan, Run
from payments_async.journal._sqlite import _opening
from payments_async.journal.contract import Chunk, OrderEvent
from payments_async.outbox import OutboxHealth
from payments_async.sandbox import Sandbox


def warm_up() -> None:
    """Import and make what each simulation would make at its first use; for a process that forks many."""
    importlib.import_module("payments_async.ipn._durable")
    codec._converter(Dialect().timezone).get_structure_hook(Transaction)
    for kind in (Chunk, Entry, Happening, ListScan, OrderEvent, OutboxHealth, Run, Testing):
        attrs.fields(kind)
    _opening._words_after(_opening.STEPS)
    Sandbox().app()
