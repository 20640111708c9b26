"""The crew: sends what the journal holds, each order under a permit, and settles it by what the service shows."""

__all__ = ["HandlerPolicy"]
