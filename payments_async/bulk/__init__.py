"""Batches of payouts in files: read, planned, run and reconciled."""

from payments_async._values.public import name_publicly
from payments_async.bulk._file._batch import Batch, FileFormat, Guess, Repeat, read_batch, sample_payroll
from payments_async.bulk._file._cells import read_money
from payments_async.bulk._file._headings import FileColumn
from payments_async.bulk._file._operators import guess_item
from payments_async.bulk._file._particulars import particulars_in
from payments_async.bulk._file._tables import BatchChanged
from payments_async.bulk._plan._payees import (
    Comparison,
    Duplicate,
    DuplicateGroup,
    Duplicates,
    PayeeChange,
)
from payments_async.bulk._plan._plan import Plan, PlanProgress, PlanSettings, Share, orders_digest, plan
from payments_async.bulk._problems import Issue, Problem
from payments_async.bulk._report._ledger import Ledger, ledger
from payments_async.bulk._report._papers import approval_sheet, receipt
from payments_async.bulk._report._report import Report, report
from payments_async.bulk._report._retries import Retries, retry_file
from payments_async.bulk._report._returned import Returned, problems_file, returned_file
from payments_async.bulk._retry_ids import LaterTry, later_tries, retried_id
from payments_async.outbox._brakes import Fuse
from payments_async.outbox._reconcile import (
    Double,
    Reconciliation,
    SearchProgress,
    acknowledge,
    give_listing_deadline,
    lift_quarantine,
    reconcile,
    send_again,
    send_again_all,
)
from payments_async.outbox._run import run_batch
from payments_async.outbox._scans import Difference
from payments_async.outbox._settings import BatchTerms, ReconcileSettings, RunSettings
from payments_async.outbox._worker_pool import FirstLook, RunProgress

__all__ = [
    "Batch",
    "BatchChanged",
    "BatchTerms",
    "Comparison",
    "Difference",
    "Double",
    "Duplicate",
    "DuplicateGroup",
    "Duplicates",
    "FileColumn",
    "FileFormat",
    "FirstLook",
    "Fuse",
    "Guess",
    "Issue",
    "LaterTry",
    "Ledger",
    "PayeeChange",
    "Plan",
    "PlanProgress",
    "PlanSettings",
    "Problem",
    "ReconcileSettings",
    "Reconciliation",
    "Repeat",
    "Report",
    "Retries",
    "Returned",
    "RunProgress",
    "RunSettings",
    "SearchProgress",
    "Share",
    "acknowledge",
    "approval_sheet",
    "give_listing_deadline",
    "guess_item",
    "later_tries",
    "ledger",
    "lift_quarantine",
    "orders_digest",
    "particulars_in",
    "plan",
    "problems_file",
    "read_batch",
    "read_money",
    "receipt",
    "reconcile",
    "report",
    "retried_id",
    "retry_file",
    "returned_file",
    "run_batch",
    "sample_payroll",
    "send_again",
    "send_again_all",
]

name_publicly(globals())
