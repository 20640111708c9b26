"""A fleet: many machines work the outboxes of one PostgreSQL journal, and PGQueuer spreads the work and keeps time."""

try:
    import pgqueuer as _  # noqa: F401
except ImportError as _error:
    if (_error.name or "pgqueuer").partition(".")[0] != "pgqueuer":
        raise
    _WORDS = "a fleet needs PGQueuer: pip install 'payments-async[pgqueuer]'"
    raise ModuleNotFoundError(_WORDS, name="pgqueuer") from _error

from payments_async._values.public import name_publicly
from payments_async.fleet._jobs import FleetNotReady
from payments_async.fleet._worker import FleetStatus, Routine, metrics, run_schedule, run_worker, status, submit

__all__ = [
    "FleetNotReady",
    "FleetStatus",
    "Routine",
    "metrics",
    "run_schedule",
    "run_worker",
    "status",
    "submit",
]

name_publicly(globals())
