"""The receiver of notifications (IPN): senders, verifiers, typed events, handlers; for aiohttp, ASGI and WSGI."""

from payments_async._values.handlers import HandlerFailure, HandlerPolicy
from payments_async._values.health import HealthProblem
from payments_async._values.public import name_publicly
from payments_async._wire.events import (
    TransactionConflict,
    TransactionEvent,
    TransactionFailed,
    TransactionProcessing,
    TransactionSucceeded,
    TransactionUnrecognised,
)
from payments_async._wire.notifications import UnreadableNotification, read_notification
from payments_async.ipn._confirm import RecordSource
from payments_async.ipn._health import ReceiverHealth
from payments_async.ipn._intake import Answer, Refusal, RequestRefused
from payments_async.ipn._receiver import Receiver, Registration
from payments_async.ipn._senders import (
    DOCUMENTED_SENDERS,
    SENDERS_2026,
    SENDERS_OLDER,
    UNIX_SOCKET,
    Delivery,
    Verifier,
)
from payments_async.ipn._server import serve, serving
from payments_async.ipn._settings import THIS_MACHINE, ReceiverSettings, ServerLimits

__all__ = [
    "Answer",
    "DOCUMENTED_SENDERS",
    "Delivery",
    "HandlerFailure",
    "HandlerPolicy",
    "HealthProblem",
    "Receiver",
    "ReceiverHealth",
    "ReceiverSettings",
    "RecordSource",
    "Refusal",
    "Registration",
    "RequestRefused",
    "SENDERS_2026",
    "SENDERS_OLDER",
    "ServerLimits",
    "THIS_MACHINE",
    "TransactionConflict",
    "TransactionEvent",
    "TransactionFailed",
    "TransactionProcessing",
    "TransactionSucceeded",
    "TransactionUnrecognised",
    "UNIX_SOCKET",
    "UnreadableNotification",
    "Verifier",
    "read_notification",
    "serve",
    "serving",
]

name_publicly(globals())
