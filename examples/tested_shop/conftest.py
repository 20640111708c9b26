"""Fixtures of the package: a simulated service, a session with it, a journal and an outbox, new for each test."""

pytest_plugins = ["payments_async.testing"]
