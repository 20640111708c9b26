"""The commands of an outbox."""
