"""Arguments by their own names, for tests that are about one of them: each goes into the value that takes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from payments_async import HttpConnection
from payments_async.bulk import BatchTerms, FileFormat, ReconcileSettings, RunSettings
from payments_async.outbox import WorkerSettings
from payments_async.sandbox import Redelivery, SandboxAccount, SandboxServer
from payments_async.testing import Testing


def nested(given: Mapping[str, Any], **parts: type[Any]) -> dict[str, Any]:
    """Arguments of a call: a field of one of these classes stands in the argument that takes such a value."""
    found = dict(given)
    for name, part in parts.items():
        fields = {field.name for field in attrs.fields(part)}
        if own := {key: found.pop(key) for key in list(found) if key in fields}:
            found[name] = attrs.evolve(found[name], **own) if name in found else part(**own)
    return found


for_sandbox = partial(nested, redelivery=Redelivery, account=SandboxAccount, server=SandboxServer)
for_session = partial(nested, connection=HttpConnection, testing=Testing)
for_outbox = partial(nested, worker=WorkerSettings, testing=Testing)
for_read = partial(nested, file=FileFormat)
for_reconcile = partial(nested, settings=ReconcileSettings, testing=Testing)


def for_journal(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a journal, whose clock gives Unix seconds."""
    return nested({"now" if name == "clock" else name: value for name, value in given.items()}, testing=Testing)


def for_run(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of ``run_batch``, whose settings hold its clock."""
    clock = {"testing": Testing(now=given["now"])} if "now" in given else {}
    return nested(
        {name: value for name, value in given.items() if name != "now"} | clock, settings=RunSettings, terms=BatchTerms
    )
