"""What each simulation would import and make at its first use; for a process that forks many."""

from __future__ import annotations

import importlib

from payments_async._wire import codec
from payments_async._wire.dialect import Dialect
from payments_async._wire.models import Transaction
from payments_async.journal._sqlite import _opening
from payments_async.sandbox import Sandbox


def warm_up() -> None:
    """Import and make what each simulation would make at its first use; for a process that forks many."""
    importlib.import_module("payments_async.ipn._durable")
    codec._converter(Dialect().timezone).get_structure_hook(Transaction)
    _opening._shape_after(_opening.STEPS)
    Sandbox().app()
