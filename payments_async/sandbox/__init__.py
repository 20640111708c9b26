"""The service, simulated from its specification alone: a server for tests, stateful and scriptable.

It shares no code with the rest of the package, so that a wrong reading of the specification is not confirmed by its
own mirror. Money, credentials and cards are made up. For tests in other languages it is steered over HTTP, under
`/_sandbox/` after the prefix, in JSON and without a token:

| call | body | answer |
|---|---|---|
| `GET state` | | counts of executions, duplicates, logins, deliveries and pending scripts, and the balance |
| `GET executions/{requestId}` | | `{"executions": n}` |
| `GET ledger?offset=0&limit=1000` | | `{"total": n, "executions": [...]}`, oldest first |
| `POST faults` | `fault`, `times`, `on`, `request_id`, `options` | `{}` |
| `POST chaos` | `rates`: fault to probability, `seed`, `options` | `{}` |
| `POST ipn` | `url` (null stops notifications) | `{}` |
| `POST advance` | `seconds` | `{}`; needs a manual clock |
| `POST settle` | `timeout` in seconds, optional | `{"settled": bool}` |
| `POST transactions/{transactionId}` | `do`: settle, fail, delay (with `seconds`), reverse or repeat | `{}` |
| `GET quirks` | | every quirk and its value |
| `POST quirks` | quirk to value | `{}`; from now on |
| `POST reset` | | `{}` |
| `POST end` | | `{}`; the server stops |

A call that makes no sense is answered 400 with `{"error": "..."}`. At `/_sandbox/` itself is a page for people, of the
same; it needs jinja2, and nothing else of the sandbox does.
"""

import inspect
from typing import get_type_hints

from ._clock import Clock, ManualClock, SystemClock
from ._faults import Fault
from ._ledger import Execution, Status
from ._notifications import DeliveryAttempt
from ._orders import Counterparty
from ._quirks import Quirks, Redelivery, SandboxAccount, SandboxServer
from ._sandbox import Sandbox
from ._service import Received

__all__ = [
    "Clock",
    "Counterparty",
    "DeliveryAttempt",
    "Execution",
    "Fault",
    "ManualClock",
    "Quirks",
    "Received",
    "Redelivery",
    "Sandbox",
    "SandboxAccount",
    "SandboxServer",
    "Status",
    "SystemClock",
]

# What is offered here names this module as its own, once its annotations have been looked up in the one it is of.
for _offered in map(globals().__getitem__, __all__):
    if isinstance(_offered, type) and (_annotated := inspect.get_annotations(_offered)):
        _hints = get_type_hints(_offered, include_extras=True)
        _offered.__annotations__ = {_name: _hints[_name] for _name in _annotated}
    _offered.__module__ = __name__
