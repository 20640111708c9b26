"""The crew: sends what the journal holds, each order under a permit, and settles it by what the service shows."""

__all__: list[str] = []  # what there is for users is about batches so far, and public in payments_async.bulk
