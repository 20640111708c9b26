"""Batches of payouts in files: read, planned, run and reconciled."""

from ._batch import Batch, read_batch
from ._problems import Problem
from ._repeats import Repeat
from ._sample import sample_payroll
from ._source import BatchChanged

__all__ = ["Batch", "BatchChanged", "Problem", "Repeat", "read_batch", "sample_payroll"]
