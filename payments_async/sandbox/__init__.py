"""The service, simulated from its specification alone: a server for tests, stateful and scriptable.

It shares no code with the rest of the package, so that a wrong reading of the specification is not confirmed by its
own mirror. Money, credentials and cards are made up. For tests in other languages it is steered over HTTP:

| call under `/_sandbox/` | body | answer |
|---|---|---|
| `GET state` | | counts, balance, duplicates |
| `GET executions/{requestId}` | | how often it was carried out |
| `GET ledger?offset=0&limit=1000` | | what was carried out, oldest first |
| `POST faults` | `fault`, `times`, `on`, `request_id`, `options` | |
| `POST chaos` | `rates`, `seed`, `options` | |
| `POST ipn` | `url` | |
| `POST advance` | `seconds` | |
| `POST settle` | `timeout` | whether everything settled in time |
| `POST reset` | | |
| `POST end` | | |
"""

from ._clock import Clock, ManualClock, SystemClock
from ._faults import Fault
from ._ledger import Execution, Status
from ._notifier import Delivery
from ._orders import Counterparty
from ._quirks import Quirks
from ._sandbox import Sandbox
from ._service import Received

__all__ = [
    "Clock",
    "Counterparty",
    "Delivery",
    "Execution",
    "Fault",
    "ManualClock",
    "Quirks",
    "Received",
    "Sandbox",
    "Status",
    "SystemClock",
]
