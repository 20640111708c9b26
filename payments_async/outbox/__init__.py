"""The outbox: pay once from an application, whatever dies meanwhile, and learn what became of it."""

from payments_async._values.handlers import HandlerFailure, HandlerPolicy
from payments_async._values.health import HealthProblem
from payments_async._values.public import name_publicly
from payments_async.outbox._brakes import Fuse
from payments_async.outbox._health import OutboxHealth
from payments_async.outbox._outbox import Outbox
from payments_async.outbox._settings import WorkerSettings

__all__ = ["Fuse", "HandlerFailure", "HandlerPolicy", "HealthProblem", "Outbox", "OutboxHealth", "WorkerSettings"]

name_publicly(globals())
