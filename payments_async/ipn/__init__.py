"""Receive notifications (IPN): senders, verifiers, typed events, handlers, and the faces for aiohttp and ASGI."""

from payments_async._events import (
    TransactionConflict,
    TransactionEvent,
    TransactionFailed,
    TransactionProcessing,
    TransactionSucceeded,
    TransactionUnrecognised,
)
from payments_async.ipn._answers import Answer
from payments_async.ipn._confirm import Confirming
from payments_async.ipn._handling import Handling
from payments_async.ipn._receiver import Receiver
from payments_async.ipn._refusals import Refusal
from payments_async.ipn._senders import DOCUMENTED_SENDERS, SENDERS_2026, SENDERS_OLDER, UNIX_SOCKET, Decision, Senders
from payments_async.ipn._serve import THIS_MACHINE, serve, serving
from payments_async.ipn._verifiers import ClientCertificateVerifier, Delivery, HmacVerifier, Verifier

__all__ = [
    "Answer",
    "ClientCertificateVerifier",
    "Confirming",
    "DOCUMENTED_SENDERS",
    "Decision",
    "Delivery",
    "Handling",
    "HmacVerifier",
    "Receiver",
    "Refusal",
    "SENDERS_2026",
    "SENDERS_OLDER",
    "Senders",
    "THIS_MACHINE",
    "TransactionConflict",
    "TransactionEvent",
    "TransactionFailed",
    "TransactionProcessing",
    "TransactionSucceeded",
    "TransactionUnrecognised",
    "UNIX_SOCKET",
    "Verifier",
    "serve",
    "serving",
]
