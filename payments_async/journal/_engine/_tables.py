"""The tables of a journal, in SQLite's words; PostgreSQL's are derived from them."""

from payments_async.journal._statements._entries import BATCH, IS_HELD, IS_HERE, IS_UNSETTLED, OUTBOX

_MIXED = "request_id <> lower(request_id) AND request_id <> upper(request_id)"

# The id of an order is its run's number, 28 bits higher, and its own number within the run: orders of one run lie side
# by side, and those of one chunk on a few neighbouring pages. Columns that are filled in later hold their place from
# the beginning (times as 8 bytes, the transaction as 16), so that a row keeps its size and its page.
TABLES = (
    """CREATE TABLE run (
        id INTEGER PRIMARY KEY, batch_id TEXT NOT NULL UNIQUE,
        base_address TEXT NOT NULL, key_fingerprint TEXT NOT NULL, user_id TEXT NOT NULL,
        source_digest TEXT, policy TEXT, epoch TEXT NOT NULL,
        uid TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'loading', loader TEXT, load_token INTEGER NOT NULL DEFAULT 0,
        load_until REAL NOT NULL DEFAULT 0, created_at REAL NOT NULL, ready_at REAL,
        quarantined_at REAL, look_since REAL,
        outbox TEXT, paused_at REAL, paused_by TEXT, paused_why TEXT, day TEXT, day_spent TEXT,
        archived INTEGER NOT NULL DEFAULT 0) STRICT""",
    "CREATE INDEX run_outbox ON run(outbox) WHERE outbox IS NOT NULL",
    """CREATE TABLE outbox (
        id INTEGER PRIMARY KEY, request_id TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'planned',
        token INTEGER NOT NULL DEFAULT 0, attempt INTEGER NOT NULL DEFAULT 0, sent_before INTEGER NOT NULL DEFAULT 0,
        amount TEXT NOT NULL, body BLOB NOT NULL, body_sha256 BLOB NOT NULL,
        transaction_id BLOB DEFAULT x'00000000000000000000000000000000',
        code INTEGER, message TEXT, conflict TEXT, permitted_at REAL NOT NULL, updated_at REAL NOT NULL,
        put_at REAL, not_before REAL NOT NULL DEFAULT 0, priority INTEGER NOT NULL DEFAULT 0) STRICT""",
    "CREATE UNIQUE INDEX outbox_request ON outbox(request_id)",
    f"CREATE INDEX outbox_mixed ON outbox(lower(request_id)) WHERE {_MIXED}",
    # none on sending, which every order passes: those under way are found by the numbers of their chunk
    f"CREATE INDEX outbox_open ON outbox(state) WHERE {IS_UNSETTLED}",
    "CREATE INDEX outbox_accepted ON outbox(state) WHERE state = 'accepted'",
    "CREATE INDEX outbox_rejected ON outbox(state) WHERE state = 'rejected'",
    "CREATE INDEX outbox_failed ON outbox(state) WHERE state = 'failed'",
    "CREATE INDEX outbox_conflict ON outbox(id) WHERE conflict IS NOT NULL",
    """CREATE INDEX outbox_transaction ON outbox(transaction_id)
        WHERE transaction_id <> x'00000000000000000000000000000000'""",
    """CREATE TABLE progress (
        run INTEGER NOT NULL, state TEXT NOT NULL, count INTEGER NOT NULL, total TEXT NOT NULL,
        PRIMARY KEY (run, state)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE chunk (
        run INTEGER NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'open', owner TEXT,
        holder TEXT,
        token INTEGER NOT NULL DEFAULT 0, lease_until REAL NOT NULL DEFAULT 0, lease REAL NOT NULL DEFAULT 0,
        due_at REAL NOT NULL DEFAULT 0, priority INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (run, number)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX chunk_open ON chunk(run, priority DESC, number) WHERE state = 'open'",
    "CREATE INDEX chunk_later ON chunk(run, number) WHERE due_at > 0",
    "CREATE INDEX chunk_leased ON chunk(run, number) WHERE owner IS NOT NULL",  # a few of thousands
    """CREATE TABLE claim (
        run INTEGER NOT NULL, number INTEGER NOT NULL, token INTEGER NOT NULL, owner TEXT, at REAL NOT NULL,
        PRIMARY KEY (run, number, token)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE attempt (
        id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL, n INTEGER NOT NULL, token INTEGER NOT NULL,
        permitted_at REAL NOT NULL, outcome TEXT NOT NULL, code INTEGER, message TEXT, done_at REAL NOT NULL) STRICT""",
    "CREATE INDEX attempt_order ON attempt(order_id)",
    """CREATE TABLE evidence (
        id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL, at REAL NOT NULL, news TEXT NOT NULL, source TEXT NOT NULL,
        transaction_id TEXT, amount TEXT, currency TEXT, detail TEXT, before TEXT NOT NULL, after TEXT NOT NULL,
        before_at REAL NOT NULL, conflict TEXT, event_id INTEGER, decided INTEGER,
        times INTEGER NOT NULL DEFAULT 1, last_at REAL NOT NULL) STRICT""",
    "CREATE INDEX evidence_order ON evidence(order_id)",
    # readings of the service's list, each for one batch or, without a run, for none in particular
    """CREATE TABLE sweep (
        id INTEGER PRIMARY KEY, run INTEGER, doubted_at REAL NOT NULL, since TEXT NOT NULL, until TEXT NOT NULL,
        begun_at REAL NOT NULL, ended_at REAL, rows INTEGER NOT NULL DEFAULT 0, requests INTEGER NOT NULL DEFAULT 0,
        counted INTEGER NOT NULL DEFAULT 0, problem TEXT) STRICT""",
    """CREATE TABLE resolution (
        id INTEGER PRIMARY KEY, order_id INTEGER, run INTEGER, kind TEXT NOT NULL, who TEXT NOT NULL,
        why TEXT NOT NULL, evidence TEXT, at REAL NOT NULL) STRICT""",
    "CREATE INDEX resolution_order ON resolution(order_id)",
    # an event with the delivery that brought it, in one row: a second row and its index would cost a tenth of all that
    # taking a notification costs; so would the event's own text where the body says the same, and there it is empty
    """CREATE TABLE ipn_event (
        id INTEGER PRIMARY KEY, transaction_id TEXT NOT NULL, status_code INTEGER NOT NULL, amount TEXT NOT NULL,
        request_id TEXT, event BLOB NOT NULL, body BLOB NOT NULL, query TEXT NOT NULL, peer TEXT NOT NULL,
        received_at REAL NOT NULL, state TEXT NOT NULL DEFAULT 'handled', tries INTEGER NOT NULL DEFAULT 0, done TEXT,
        error TEXT, conflict TEXT, order_id INTEGER, times INTEGER NOT NULL DEFAULT 1, last_at REAL,
        doubt TEXT) STRICT""",
    # whatever its row says, an event is pending while it is here; so most rows are written once and never again
    """CREATE TABLE ipn_pending (
        event_id INTEGER PRIMARY KEY, owner TEXT NOT NULL, holder TEXT NOT NULL, due_at REAL NOT NULL,
        failed INTEGER NOT NULL DEFAULT 0) STRICT""",
    "CREATE INDEX ipn_pending_due ON ipn_pending(due_at)",
    "CREATE INDEX ipn_pending_failed ON ipn_pending(event_id) WHERE failed <> 0",
    "CREATE UNIQUE INDEX ipn_event_fact ON ipn_event(transaction_id, status_code, amount)",
    # the order's number beside it, so that those without one are found without reading their rows
    "CREATE INDEX ipn_event_request ON ipn_event(request_id, order_id) WHERE request_id IS NOT NULL",
    "CREATE INDEX ipn_event_dead ON ipn_event(id) WHERE state = 'dead'",
    "CREATE INDEX ipn_event_doubt ON ipn_event(doubt, request_id) WHERE doubt IS NOT NULL",
    "CREATE INDEX ipn_event_disputed ON ipn_event(id) WHERE state = 'disputed'",
    "CREATE INDEX ipn_event_nameless ON ipn_event(transaction_id) WHERE order_id IS NULL AND request_id IS NULL",
    # further deliveries of an event, in other words than the first
    """CREATE TABLE ipn_delivery (
        id INTEGER PRIMARY KEY, event_id INTEGER NOT NULL, digest BLOB NOT NULL, body BLOB NOT NULL,
        query TEXT NOT NULL, peer TEXT NOT NULL, received_at REAL NOT NULL, times INTEGER NOT NULL DEFAULT 1,
        last_at REAL) STRICT""",
    "CREATE UNIQUE INDEX ipn_delivery_once ON ipn_delivery(event_id, digest)",
    # the events that became evidence later than they were stored: whoever waits reads on from the last row of both
    "CREATE TABLE ipn_believed (id INTEGER PRIMARY KEY, event_id INTEGER NOT NULL) STRICT",
    "CREATE INDEX ipn_believed_event ON ipn_believed(event_id)",
    # what a list has shown of orders that a journal which may have forgotten some does not hold; ids in small letters
    """CREATE TABLE sighting (
        request_id TEXT PRIMARY KEY, transaction_id TEXT NOT NULL, news TEXT NOT NULL, amount TEXT, currency TEXT,
        at REAL NOT NULL) STRICT, WITHOUT ROWID""",
    "CREATE INDEX sighting_at ON sighting(at)",
    # of which states the handlers of an outbox hear, and when such a process asked last: it may be gone for good
    """CREATE TABLE hearing (
        outbox TEXT NOT NULL, state TEXT NOT NULL, at REAL NOT NULL,
        PRIMARY KEY (outbox, state)) STRICT, WITHOUT ROWID""",
    # owner and holder are there while it is leased, and due_at is the end of the lease then; 0 for what never failed
    """CREATE TABLE change (
        id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL, outbox TEXT NOT NULL, state TEXT NOT NULL, at REAL NOT NULL,
        status TEXT NOT NULL, owner TEXT, holder TEXT, due_at REAL NOT NULL DEFAULT 0,
        tries INTEGER NOT NULL DEFAULT 0, done TEXT, error TEXT) STRICT""",
    "CREATE INDEX change_due ON change(outbox, state, due_at) WHERE status = 'pending'",
    "CREATE INDEX change_leased ON change(holder) WHERE holder IS NOT NULL",  # a few of millions
    "CREATE INDEX change_dead ON change(id) WHERE status = 'dead'",
    "CREATE INDEX change_open ON change(order_id) WHERE status IN ('pending', 'dead')",  # keeps its order from leaving
    # Files that old orders have left for, and what stays of those: by what they are known again, so that none is sent
    # again, and how they ended. ``about`` is the beginning of the body, which names nobody.
    """CREATE TABLE archive (
        id INTEGER PRIMARY KEY, path TEXT NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL, begun_at REAL NOT NULL,
        ended_at REAL, orders INTEGER NOT NULL DEFAULT 0) STRICT""",
    """CREATE TABLE archived (
        id INTEGER PRIMARY KEY, request_id TEXT NOT NULL, state TEXT NOT NULL, attempt INTEGER NOT NULL,
        sent_before INTEGER NOT NULL, amount TEXT NOT NULL, about BLOB NOT NULL, body_sha256 BLOB NOT NULL,
        transaction_id BLOB, permitted_at REAL NOT NULL, updated_at REAL NOT NULL, archive INTEGER NOT NULL) STRICT""",
    "CREATE UNIQUE INDEX archived_request ON archived(request_id)",
    f"CREATE INDEX archived_mixed ON archived(lower(request_id)) WHERE {_MIXED}",
    """CREATE INDEX archived_transaction ON archived(transaction_id)
        WHERE transaction_id <> x'00000000000000000000000000000000'""",
    # what one of all who share the journal does for the others
    "CREATE TABLE duty (name TEXT PRIMARY KEY, owner TEXT, holder TEXT, until REAL) STRICT",
    # who proposed what, who approved it, and who took that back; and how many have to, of which the latest counts
    """CREATE TABLE proposal (
        id INTEGER PRIMARY KEY, digest TEXT NOT NULL, batch_id TEXT NOT NULL, orders INTEGER NOT NULL,
        amount TEXT NOT NULL, currency TEXT, file TEXT NOT NULL, who TEXT NOT NULL, login TEXT NOT NULL,
        machine TEXT NOT NULL, at REAL NOT NULL) STRICT""",
    "CREATE INDEX proposal_digest ON proposal(digest)",
    """CREATE TABLE approval (
        id INTEGER PRIMARY KEY, digest TEXT NOT NULL, note TEXT NOT NULL, who TEXT NOT NULL, login TEXT NOT NULL,
        machine TEXT NOT NULL, at REAL NOT NULL, withdrawn_by TEXT, withdrawn_login TEXT, withdrawn_machine TEXT,
        withdrawn_at REAL) STRICT""",
    "CREATE INDEX approval_digest ON approval(digest)",
    """CREATE TABLE approval_rule (
        id INTEGER PRIMARY KEY, needed INTEGER NOT NULL, shared_logins INTEGER NOT NULL, why TEXT NOT NULL,
        who TEXT NOT NULL, login TEXT NOT NULL, machine TEXT NOT NULL, at REAL NOT NULL) STRICT""",
    # how fast all may send: when the next turn is, and a pause that the service asked for; and who names which rate
    """CREATE TABLE pace (
        id INTEGER PRIMARY KEY, rate REAL, next_at REAL NOT NULL DEFAULT 0, cool_at REAL NOT NULL DEFAULT 0,
        cool_for REAL NOT NULL DEFAULT 0, cool_why TEXT) STRICT""",
    "CREATE TABLE pace_named (owner TEXT PRIMARY KEY, holder TEXT, rate REAL NOT NULL, until REAL NOT NULL) STRICT",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
)

# Ids that differ in letters alone are one: each is known by its key (`plain_id`), which `write_keys` fills in. Of
# notifications and sightings the key alone is looked for.
KEYED = (
    *(f"ALTER TABLE {table} ADD COLUMN request_key TEXT NOT NULL DEFAULT ''" for table in ("outbox", "archived")),
    *(f"ALTER TABLE {table} RENAME COLUMN request_id TO request_key" for table in ("ipn_event", "sighting")),
    *(f"DROP INDEX {table}_{what}" for table in ("outbox", "archived") for what in ("request", "mixed")),
)

# What waits for handlers, in one queue: notifications (`inbox`) and changes of orders (`outbox`). Most rows are written
# and deleted within moments; what failed before stays as `done`, for histories. While a delivery is leased, `due_at` is
# the end of its lease; 0 is for what never failed. `span` is how long its last wait or lease was to be.
QUEUED = (
    """CREATE TABLE delivery (
        queue TEXT NOT NULL, about INTEGER NOT NULL, topic TEXT NOT NULL DEFAULT '', order_id INTEGER,
        status TEXT NOT NULL DEFAULT 'pending', owner TEXT NOT NULL DEFAULT '', holder TEXT NOT NULL DEFAULT '',
        due_at REAL NOT NULL DEFAULT 0, span REAL NOT NULL DEFAULT 0, tries INTEGER NOT NULL DEFAULT 0,
        done TEXT, error TEXT, PRIMARY KEY (queue, about)) STRICT, WITHOUT ROWID""",
    """INSERT INTO delivery (queue, about, status, owner, holder, due_at, tries, done, error)
        SELECT 'inbox', e.id,
        CASE WHEN p.event_id IS NOT NULL THEN 'pending' WHEN e.state = 'dead' THEN 'dead' ELSE 'done' END,
        coalesce(p.owner, ''), coalesce(p.holder, ''), coalesce(p.due_at, 0), e.tries, e.done,
        CASE WHEN e.state <> 'disputed' THEN e.error END
        FROM ipn_event e LEFT JOIN ipn_pending p ON p.event_id = e.id
        WHERE p.event_id IS NOT NULL OR e.state = 'dead' OR e.tries > 0""",
    """INSERT INTO delivery (queue, about, topic, order_id, status, owner, holder, due_at, tries, done, error)
        SELECT 'outbox', c.id, c.state || '/' || c.outbox, c.order_id,
        CASE WHEN c.status IN ('pending', 'dead') THEN c.status ELSE 'done' END,
        coalesce(c.owner, ''), coalesce(c.holder, ''), c.due_at, c.tries, c.done, c.error
        FROM change c WHERE c.status IN ('pending', 'dead') OR c.tries > 0""",
    """UPDATE ipn_event SET error = CASE WHEN state = 'disputed' THEN error END,
        state = CASE WHEN state = 'disputed' THEN state ELSE 'handled' END WHERE state = 'dead' OR error IS NOT NULL""",
    "CREATE INDEX delivery_due ON delivery(queue, topic, due_at) WHERE status = 'pending'",
    "CREATE INDEX delivery_dead ON delivery(queue, about) WHERE status = 'dead'",
    # keeps its order from leaving
    "CREATE INDEX delivery_order ON delivery(order_id) WHERE order_id IS NOT NULL AND status <> 'done'",
    "DROP TABLE ipn_pending",
    *(f"DROP INDEX {name}" for name in ("ipn_event_dead", "change_due", "change_leased", "change_dead", "change_open")),
    *(f"ALTER TABLE ipn_event DROP COLUMN {name}" for name in ("tries", "done")),
    *(
        f"ALTER TABLE change DROP COLUMN {name}"
        for name in ("status", "owner", "holder", "due_at", "tries", "done", "error")
    ),
)

# An archived order keeps its row: ``archive`` is the number of its file, ``body`` the beginning, without any name.
# Where a partial backup put the order back as well, the archived one counts: it has ended. Of two orders whose ids have
# one key the one that is here keeps it; the other gets a key of its own, as in ``write_keys``.
IN_PLACE = (
    "ALTER TABLE outbox ADD COLUMN archive INTEGER",
    """DELETE FROM outbox WHERE id IN (SELECT a.id FROM archived a
        JOIN outbox o ON o.id = a.id AND o.request_key = a.request_key)""",
    """INSERT INTO outbox (id, request_id, request_key, state, attempt, sent_before, amount, body, body_sha256,
        transaction_id, permitted_at, updated_at, archive)
        SELECT id, request_id, CASE WHEN EXISTS (SELECT 1 FROM outbox o WHERE o.request_key = a.request_key)
        THEN request_id || '\n' || id ELSE request_key END, state, attempt, sent_before, amount, about, body_sha256,
        transaction_id, permitted_at, updated_at, archive FROM archived a""",
    "DROP TABLE archived",
    "DROP INDEX outbox_rejected",
    "DROP INDEX outbox_failed",
    f"CREATE INDEX outbox_rejected ON outbox(state) WHERE state = 'rejected' AND {IS_HERE}",
    f"CREATE INDEX outbox_failed ON outbox(state) WHERE state = 'failed' AND {IS_HERE}",
)

# What one of all who share the journal does for now: a duty, loading a batch, naming a rate. Whoever takes it gets a
# higher token than all before; ``span`` is for how long. None goes along: whoever had one is of the version before.
LEASED = (
    """CREATE TABLE lease (
        kind TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL, holder TEXT, token INTEGER NOT NULL DEFAULT 0,
        until REAL NOT NULL, span REAL NOT NULL, rate REAL, PRIMARY KEY (kind, key)) STRICT, WITHOUT ROWID""",
    "DROP TABLE duty",
    "DROP TABLE pace_named",
    *(f"ALTER TABLE run DROP COLUMN {name}" for name in ("loader", "load_token", "load_until")),
)

# What the service calls the exchange of an attempt, and the trace context (W3C) of who put an order. Both are there for
# few: nothing is written where there is neither.
TRACED = (
    "ALTER TABLE outbox ADD COLUMN correlation_id TEXT",
    "ALTER TABLE outbox ADD COLUMN traceparent TEXT",
    "ALTER TABLE attempt ADD COLUMN correlation_id TEXT",
)

# What was told by another column's value: an outbox was a run that it named itself to be sent by, and what cannot be
# sent as it is was due at a moment that never comes.
SPELT_OUT = (
    f"ALTER TABLE run ADD COLUMN kind TEXT NOT NULL DEFAULT '{BATCH}'",
    f"UPDATE run SET kind = '{OUTBOX}' WHERE outbox = batch_id",  # noqa: S608 - no value in it
    "ALTER TABLE outbox ADD COLUMN held_at REAL",
    "UPDATE outbox SET held_at = updated_at, not_before = 0 WHERE not_before = 1e15",
    "UPDATE chunk SET due_at = 0 WHERE due_at = 1e15",  # whoever claims it finds that it is done
    f"CREATE INDEX outbox_held ON outbox(id) WHERE {IS_HELD}",
)

# Where a proposal comes from, so that it can be sent without naming its file again, and who took it back; and what a
# batch file says of an order beside it (its row, and the cells that are not read), so that a person is found by it.
SOURCED = (
    *(f"ALTER TABLE proposal ADD COLUMN {name} TEXT" for name in ("path", "file_digest", "options")),
    *(f"ALTER TABLE proposal ADD COLUMN withdrawn_{name} TEXT" for name in ("by", "login", "machine")),
    "ALTER TABLE proposal ADD COLUMN withdrawn_at REAL",
    """CREATE TABLE particulars (
        order_id INTEGER PRIMARY KEY, file_row INTEGER NOT NULL, cells TEXT NOT NULL) STRICT""",
)
