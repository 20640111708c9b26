"""Which tests concern a guard: those of its file, the sharpest first. Paths are below the project's root."""

from __future__ import annotations

from collections.abc import Mapping

from mutation import mutants

_DAMAGED = "tests/outbox/test_held_back.py"
_PERMITS = (
    "tests/journal/test_contract_outbox.py",
    "tests/journal/test_late_proof.py",
    "tests/journal/test_never_sent.py",
    "tests/journal/test_contract_holders.py",
    "tests/journal/test_wrong_clocks.py",
    "tests/journal/test_together.py",
    "tests/journal/test_withdrawn.py",
    "tests/journal/test_lost_answers.py",
    "tests/journal/test_contract_puts.py",
    "tests/journal/test_sqlite_quarantine.py",
    "tests/journal/test_model.py",
    "tests/journal/test_model_puts.py",
    "tests/journal/test_archiving.py",
    "tests/journal/test_asked_back.py",
    "tests/journal/test_contract_doubts.py",
)
_STATES = (
    "tests/journal/test_states.py",
    "tests/journal/test_weighing.py",
    "tests/journal/test_contract_outbox.py",
    "tests/journal/test_late_proof.py",
    "tests/journal/test_belief.py",
    "tests/journal/test_contract_puts.py",
)
_PUTS = (
    "tests/journal/test_contract_puts.py",
    "tests/journal/test_adoption.py",
    "tests/journal/test_request_ids.py",
    "tests/journal/test_archiving.py",
    "tests/journal/test_forgotten.py",
    "tests/journal/test_contract_approvals.py",
    "tests/journal/test_model_puts.py",
    "tests/outbox/test_sent_by_session.py",
    "tests/outbox/test_forgetting.py",
    "tests/outbox/test_strangers.py",
    "tests/outbox/test_settling.py",
)
_SIGNED = ("tests/journal/test_contract_approvals.py", "tests/cli/test_signed_approvals.py")
_LOADING = (
    "tests/journal/test_contract_loads.py",
    "tests/journal/test_contract_approvals.py",
    "tests/journal/test_contract_outbox.py",
    "tests/journal/test_contract_inbox.py",
    "tests/journal/test_archiving.py",
    "tests/journal/test_forgotten.py",
    "tests/journal/test_sqlite_quarantine.py",
    "tests/outbox/test_sent_by_session.py",
)
_ABSENCE = (
    "tests/journal/test_sweeps.py",
    "tests/journal/test_looks.py",
    "tests/journal/test_listing_deadlines.py",
    "tests/journal/test_wrong_clocks.py",
    "tests/bulk/test_reconcile.py",
    "tests/bulk/test_sweeps.py",
    "tests/bulk/test_reconcile_doubts.py",
    "tests/bulk/test_reconcile_pages.py",
    "tests/outbox/test_settling.py",
    "tests/outbox/test_late_lists.py",
    "tests/outbox/test_failed_by_notification.py",
    "tests/outbox/test_late_and_lost.py",
)
_SETTLING = (
    "tests/outbox/test_settling.py",
    "tests/outbox/test_late_lists.py",
    "tests/outbox/test_strangers.py",
    "tests/outbox/test_late_and_lost.py",
    "tests/bulk/test_reconcile.py",
)
_LOOKS = (
    "tests/bulk/test_look_first.py",
    "tests/bulk/test_run.py",
    "tests/outbox/test_late_lists.py",
    "tests/outbox/test_forgetting.py",
    "tests/outbox/test_and_batches.py",
    "tests/outbox/test_strangers.py",
    "tests/outbox/test_health.py",
    "tests/outbox/test_two_machines.py",
    "tests/journal/test_looks.py",
)
_IDENTITY = (
    "tests/journal/test_forgotten.py",
    "tests/journal/test_sqlite_quarantine.py",
    "tests/journal/test_opening.py",
    "tests/journal/test_partial_restores.py",
    "tests/journal/test_sqlite_faults.py",
    "tests/journal/test_looks.py",
    "tests/journal/test_sweeps.py",
    "tests/journal/test_contract_outbox.py",
    "tests/outbox/test_forgetting.py",
    "tests/outbox/test_late_lists.py",
)
_SESSION = (
    "tests/session/test_transport.py",
    "tests/session/test_known_orders.py",
    "tests/session/test_retry.py",
    "tests/session/test_login.py",
    "tests/session/test_faults.py",
    "tests/session/test_unread.py",
    "tests/session/test_cancellation.py",
    "tests/session/test_undelivered.py",
    "tests/session/test_deadlines.py",
    "tests/session/test_send_many.py",
)
_CREW = (
    "tests/bulk/test_crew.py",
    "tests/bulk/test_stalls.py",
    "tests/bulk/test_run.py",
    "tests/journal/test_departures.py",
    "tests/outbox/test_sent_by_session.py",
    "tests/outbox/test_sent_again.py",
    "tests/outbox/test_cancelled_callers.py",
    "tests/outbox/test_paying.py",
    "tests/journal/test_never_sent.py",
    "tests/bulk/test_marks.py",
)
_IPN = (
    "tests/ipn/test_storing.py",
    "tests/ipn/test_belief.py",
    "tests/ipn/test_records_that_differ.py",
    "tests/ipn/test_strangers.py",
    "tests/ipn/test_receiver.py",
    "tests/ipn/test_ending.py",
    "tests/ipn/test_ended_tasks.py",
)
_INBOX = (
    "tests/journal/test_contract_deliveries.py",
    "tests/journal/test_belief.py",
    "tests/journal/test_contract_doubts.py",
    "tests/journal/test_contract_inbox.py",
    "tests/journal/test_contract_puts.py",
    "tests/journal/test_other_accounts.py",
    *_IPN,
)
_TRAY = (
    "-k=not sqlite",
    "tests/outbox/test_transactions.py",
    "tests/outbox/test_transactions_model.py",
    "tests/journal/test_postgres_tables.py",
    "tests/journal/test_partial_restores.py",
)
_EXCHANGE = ("tests/journal/test_one_exchange.py", "tests/journal/test_postgres_tenants.py")
_SERVER = (
    "-k=not sqlite",
    "-m=slow or not slow",  # those that start a server of their own are slow
    "tests/journal/test_partial_restores.py",
    "tests/journal/test_looks.py",
    "tests/journal/test_sweeps.py",
    "tests/journal/test_postgres_server.py",
    "tests/journal/test_contract_outbox.py",
    "tests/outbox/test_failover.py",
    "tests/journal/test_copying.py",
)
_OF: Mapping[str, tuple[str, ...]] = {
    mutants.PERMITS: (*_PERMITS[:10], _DAMAGED, "tests/journal/test_departures.py", *_PERMITS[10:]),
    mutants.RECORDS: (_DAMAGED, *_PERMITS, "tests/journal/test_records.py"),
    mutants.STATES: _STATES,
    mutants.WEIGHING: (*_STATES, "tests/journal/test_sqlite_quarantine.py"),
    mutants.EVIDENCE: (
        "tests/journal/test_cancelling.py",
        "tests/journal/test_archiving.py",
        *_STATES,
        "tests/journal/test_contract_doubts.py",
        "tests/journal/test_contract_approvals.py",
        *_PERMITS[2:],
        *_ABSENCE[:7],
    ),
    mutants.APPROVALS: ("tests/journal/test_contract_approvals.py", "tests/cli/test_approvals.py"),
    **dict.fromkeys((mutants.APPROVERS, mutants.SIGNED), _SIGNED),
    mutants.PUTS: _PUTS,
    mutants.IDS: ("tests/journal/test_request_ids.py", "tests/journal/test_contract_puts.py"),
    mutants.LOADING: _LOADING,
    mutants.NAMED: _LOADING,
    mutants.DEADLINES: (*_ABSENCE[2:3], "tests/journal/test_contract_outbox.py"),
    mutants.ENTRIES: (*_ABSENCE, "tests/journal/test_archiving.py"),
    mutants.HISTORY: (*_ABSENCE, *_IDENTITY),
    mutants.RECONCILE: _ABSENCE[2:],
    mutants.ABSENCES: _ABSENCE[2:],
    mutants.TARGETS: _ABSENCE[2:],
    mutants.SCANS: _ABSENCE[2:],
    mutants.PASSES: _SETTLING,
    mutants.SETTLING: _SETTLING,
    mutants.LISTS: (
        "tests/session/test_readings.py",
        "tests/session/test_paging.py",
        "tests/session/test_pages_abreast.py",
        *_ABSENCE[4:8],
    ),
    mutants.STATUSES: ("tests/session/test_statuses.py", *_ABSENCE[4:8]),
    mutants.RUN: _LOOKS,
    mutants.SENDING: _LOOKS[2:],
    mutants.STANDING: _LOOKS[2:],
    mutants.IDENTITY: _IDENTITY,
    mutants.OPENING: _IDENTITY,
    mutants.DATABASE: (
        *_IDENTITY,
        "tests/journal/test_lost_answers.py",
        "tests/journal/test_other_programs.py",
        "tests/journal/test_known_answers.py",
    ),
    mutants.QUARANTINE: ("tests/journal/test_contract_puts.py", *_IDENTITY, "tests/journal/test_asked_back.py"),
    mutants.MEMORY: (
        "tests/journal/test_second_journal.py",
        "tests/journal/test_adoption.py",
        "tests/journal/test_forgotten.py",
        "tests/journal/test_request_ids.py",
    ),
    mutants.JOURNAL: (
        "tests/journal/test_forgotten.py",
        "tests/journal/test_adoption.py",
        "tests/bulk/test_look_first.py",
        "tests/journal/test_contract_loads.py",
    ),
    mutants.DEPARTURES: ("tests/journal/test_departures.py", "tests/journal/test_never_sent.py"),
    mutants.CREW: (*_CREW, "tests/bulk/test_look_first.py", "tests/outbox/test_forgetting.py"),
    mutants.LEASES: _CREW,
    mutants.WRITER: (
        "tests/journal/test_lost_answers.py",
        "tests/journal/test_sqlite_faults.py",
        "tests/journal/test_together.py",
        "tests/journal/test_known_answers.py",
    ),
    mutants.DISPATCHING: ("tests/outbox/test_changes.py", "tests/ipn/test_ended_tasks.py"),
    mutants.DELIVERIES: ("tests/journal/test_contract_deliveries.py", "tests/journal/test_contract_changes.py"),
    mutants.EXECUTOR: _SESSION,
    mutants.TRANSPORT: (*_SESSION, "tests/bulk/test_stalls.py"),
    mutants.BOOKS: ("tests/session/test_known_orders.py", *_SESSION),
    mutants.REPLIES: ("tests/wire/test_replies.py", "tests/wire/test_response_vectors.py", *_SESSION[:4]),
    mutants.SENDERS: ("tests/ipn/test_senders.py",),
    mutants.CONFIRM: (
        "tests/ipn/test_records_that_differ.py",
        "tests/ipn/test_belief.py",
        "tests/ipn/test_receiver.py",
    ),
    mutants.INBOX: _IPN,
    mutants.NOTIFICATIONS: _INBOX,
    mutants.TRAY: _TRAY,
    mutants.SERVER: _SERVER,
    mutants.CONNECTION: ("-k=not sqlite", "tests/journal/test_lost_answers.py", *_EXCHANGE[1:]),
    mutants.EXCHANGE: _EXCHANGE,
    mutants.POSTGRES: (*_EXCHANGE, "tests/journal/test_other_programs.py"),
}
# The explorer's modules of small worlds that are asked about a file first; about some, no other world is asked.
DESKS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((mutants.DEADLINES, mutants.LOADING, mutants.APPROVALS, mutants.APPROVING), ("desks",)),
    mutants.NAMED: ("desks",),
    **dict.fromkeys((mutants.PERMITS, mutants.RECORDS), ("leases",)),
    **dict.fromkeys((mutants.WEIGHING, mutants.STATES), ("persons", "leases")),
    mutants.EVIDENCE: ("persons", "leases", "desks"),
    **dict.fromkeys((mutants.PUTS, mutants.IDS), ("puts", "files")),
    mutants.REPLIES: ("replies",),
    **dict.fromkeys((mutants.APPROVERS, mutants.SIGNED), ("signatures",)),
    **dict.fromkeys((mutants.BOOKS, mutants.EXECUTOR, mutants.TRANSPORT), ("sessions",)),
    mutants.NOTIFICATIONS: ("notifications",),
    **dict.fromkeys((mutants.ABSENCES, mutants.PASSES), ("absences",)),
    mutants.QUARANTINE: ("persons", "files", "desks"),
    **dict.fromkeys((mutants.IDENTITY, mutants.OPENING, mutants.DATABASE, mutants.MEMORY, mutants.JOURNAL), ("files",)),
    mutants.WRITER: ("files",),
    **dict.fromkeys((mutants.ENTRIES, mutants.HISTORY), ("persons", "workers")),
    mutants.DEPARTURES: ("departures",),
    **dict.fromkeys((mutants.LISTS, mutants.STATUSES, mutants.SCANS), ("readings",)),
    **dict.fromkeys((mutants.SENDERS, mutants.CONFIRM, mutants.INBOX, mutants.DISPATCHING), ("arrivals",)),
    mutants.DELIVERIES: ("deliveries",),
    **dict.fromkeys((mutants.CREW, mutants.LEASES), ("workers",)),
    **dict.fromkeys(
        (mutants.TRAY, mutants.SERVER, mutants.CONNECTION, mutants.EXCHANGE, mutants.POSTGRES), ("servers",)
    ),
}
BY_DESKS_ALONE = frozenset(
    {mutants.DEADLINES, mutants.LOADING, mutants.APPROVALS, mutants.APPROVING, mutants.REPLIES, mutants.APPROVERS}
    | {mutants.SIGNED, mutants.BOOKS, mutants.EXECUTOR, mutants.TRANSPORT, mutants.NOTIFICATIONS, mutants.ABSENCES}
    | {mutants.DEPARTURES, mutants.IDENTITY, mutants.OPENING, mutants.DATABASE, mutants.MEMORY, mutants.JOURNAL}
    | {
        mutants.PASSES,
        mutants.LISTS,
        mutants.STATUSES,
        mutants.SENDERS,
        mutants.CONFIRM,
        mutants.INBOX,
        mutants.DISPATCHING,
    }
    | {mutants.DELIVERIES, mutants.CREW, mutants.LEASES, mutants.NAMED, mutants.WRITER}
    | {mutants.TRAY, mutants.SERVER, mutants.CONNECTION, mutants.EXCHANGE, mutants.POSTGRES}
)
# Where a judge never comes by: it lets live whatever is changed there.
_UNSEEN: Mapping[str, frozenset[str]] = {
    "explorer": frozenset(_OF) - {
        *(mutants.PERMITS, mutants.RECORDS, mutants.STATES, mutants.WEIGHING, mutants.EVIDENCE, mutants.PUTS),
        *(mutants.ENTRIES, mutants.HISTORY, mutants.NOTIFICATIONS, mutants.QUARANTINE, mutants.RECONCILE),
        *(mutants.SCANS, mutants.TARGETS, mutants.ABSENCES, mutants.IDS, *DESKS),
    },
    "simulation": frozenset({mutants.TRAY}),
}  # fmt: skip
DATABASES = frozenset(
    {mutants.SERVER, mutants.CONNECTION, mutants.EXCHANGE, mutants.POSTGRES}
)  # files that the simulation runs with a journal in PostgreSQL alone
_FILES = ("put_back", "copy", "lose", "replace")
_LISTS = ("late", "unstable", "ignores_status_filter", "no_total", "lying_total", "small_pages", "lying_next_page")
_STANDSTILLS = ("stop", "suspend", "pause", "kill")
# What has to go wrong before a guard of a file is needed: only such seeds are asked about it.
_FAULTS: Mapping[str, tuple[str, ...]] = {
    mutants.REPLIES: ("lies",),
    mutants.APPROVALS: ("approves",),
    **dict.fromkeys((mutants.SENDERS, mutants.CONFIRM, mutants.INBOX, mutants.NOTIFICATIONS), ("forgeries",)),
    mutants.MEMORY: ("second_journal", *_FILES),
    **dict.fromkeys((mutants.IDENTITY, mutants.OPENING, mutants.DATABASE, mutants.QUARANTINE, mutants.JOURNAL), _FILES),
    **dict.fromkeys((mutants.RUN, mutants.SENDING, mutants.STANDING), (*_FILES, "suspend", "pause")),
    mutants.DEPARTURES: ("kill", "power_cut", "crash_points"),
    **dict.fromkeys((mutants.PERMITS, mutants.LEASES), _STANDSTILLS),
    mutants.CREW: (*_STANDSTILLS, "cancel", "sends_again"),
    **dict.fromkeys((mutants.EXECUTOR, mutants.TRANSPORT, mutants.BOOKS), ("cut", "lost_after", "cancel", "twice")),
    mutants.WRITER: ("disk_errors", "disk_full", "power_cut"),
    **dict.fromkeys((mutants.SCANS, mutants.PASSES, mutants.LISTS, mutants.STATUSES, mutants.RECONCILE), _LISTS),
    **dict.fromkeys((mutants.DISPATCHING, mutants.DELIVERIES), ("handlers_fail",)),
}
CHILDREN = ("-k=taken_twice or forked_child", "tests/journal/test_departures.py")  # they start processes


def concerning(file: str) -> tuple[str, ...]:
    """Paths of the tests that concern the guards of a file, with options for pytest before them."""
    return _OF[file]


def faults(file: str) -> tuple[str, ...]:
    """Faults of a simulation of which one has to exist where the guards of a file are judged; empty where any will do."""
    return _FAULTS.get(file, ())


def comes_by(judge: str, file: str) -> bool:
    """Whether a judge runs anything of a file."""
    return file not in _UNSEEN.get(judge, frozenset())
