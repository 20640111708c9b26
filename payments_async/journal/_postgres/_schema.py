"""The tables of a journal in a namespace of a PostgreSQL database, and how they are brought up to date."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import attrs

from payments_async.journal._engine._request_keys import SINCE, write_keys
from payments_async.journal._faults import JournalOutdated, NotAJournal
from payments_async.journal._postgres._connection import HAS_ROOM, NO_TRANSACTION, PgConnection
from payments_async.journal._postgres._faults import MOVED
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import IS_UNSETTLED, SHIFT, among
from payments_async.journal._statements._moving import TableShape, tables_in
from payments_async.journal._states import UNSENT
from payments_async.journal._versions import Migration, Step, Version, migration

# Texts compare byte by byte, as everywhere in the package, whatever the language of the database.
_TEXT = 'TEXT COLLATE "C"'

# The same tables as SQLite's, column by column (a test compares them), with the reasons written there. Numbers that
# the database gives follow each other without a gap where somebody counts on it (events, runs, archives): a default
# that looks for the highest one, for all who write wait for each other; and that follows by itself where one was given
# out of turn. Elsewhere they only have to rise.
# Each order leaves three dead rows behind on its way; of a table of millions the usual fifth of it would be let lie for
# days, and whoever pages through what is accepted would step over them.
_TABLES = """
CREATE FUNCTION {s}.next_number() RETURNS bigint LANGUAGE plpgsql AS
    $$BEGIN RETURN (SELECT coalesce(max(id), 0) + 1 FROM {s}.ipn_event); END$$;
CREATE FUNCTION {s}.next_run() RETURNS bigint LANGUAGE plpgsql AS
    $$BEGIN RETURN (SELECT coalesce(max(id), 0) + 1 FROM {s}.run); END$$;
CREATE FUNCTION {s}.next_archive() RETURNS bigint LANGUAGE plpgsql AS
    $$BEGIN RETURN (SELECT coalesce(max(id), 0) + 1 FROM {s}.archive); END$$;
CREATE TABLE {s}.run (
    id BIGINT PRIMARY KEY DEFAULT {s}.next_run(), batch_id {t} NOT NULL UNIQUE,
    base_address {t} NOT NULL, key_fingerprint {t} NOT NULL, user_id {t} NOT NULL,
    source_digest {t}, policy {t}, epoch {t} NOT NULL,
    uid {t} NOT NULL, state {t} NOT NULL DEFAULT 'loading', loader {t}, load_token BIGINT NOT NULL DEFAULT 0,
    load_until DOUBLE PRECISION NOT NULL DEFAULT 0, created_at DOUBLE PRECISION NOT NULL, ready_at DOUBLE PRECISION,
    quarantined_at DOUBLE PRECISION, look_since DOUBLE PRECISION,
    outbox {t}, paused_at DOUBLE PRECISION, paused_by {t}, paused_why {t}, day {t}, day_spent {t},
    archived BIGINT NOT NULL DEFAULT 0);
CREATE INDEX run_outbox ON {s}.run(outbox) WHERE outbox IS NOT NULL;
CREATE TABLE {s}.outbox (
    id BIGINT PRIMARY KEY, request_id {t} NOT NULL, state {t} NOT NULL DEFAULT 'planned',
    token BIGINT NOT NULL DEFAULT 0, attempt BIGINT NOT NULL DEFAULT 0, sent_before BIGINT NOT NULL DEFAULT 0,
    amount {t} NOT NULL, body BYTEA NOT NULL, body_sha256 BYTEA NOT NULL,
    transaction_id BYTEA DEFAULT {none},
    code BIGINT, message {t}, conflict {t}, permitted_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL, put_at DOUBLE PRECISION, not_before DOUBLE PRECISION NOT NULL DEFAULT 0,
    priority BIGINT NOT NULL DEFAULT 0);
ALTER TABLE {s}.outbox SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);
CREATE UNIQUE INDEX outbox_request ON {s}.outbox(request_id);
CREATE INDEX outbox_mixed ON {s}.outbox(lower(request_id)) WHERE {mixed};
CREATE INDEX outbox_open ON {s}.outbox(state, id) WHERE {unsettled};
CREATE INDEX outbox_accepted ON {s}.outbox(id) WHERE state = 'accepted';
CREATE INDEX outbox_rejected ON {s}.outbox(id) WHERE state = 'rejected';
CREATE INDEX outbox_failed ON {s}.outbox(id) WHERE state = 'failed';
CREATE INDEX outbox_conflict ON {s}.outbox(id) WHERE conflict IS NOT NULL;
CREATE INDEX outbox_transaction ON {s}.outbox(transaction_id) WHERE transaction_id <> {none};
CREATE TABLE {s}.progress (
    run BIGINT NOT NULL, state {t} NOT NULL, count BIGINT NOT NULL, total {t} NOT NULL, PRIMARY KEY (run, state));
CREATE TABLE {s}.chunk (
    run BIGINT NOT NULL, number BIGINT NOT NULL, state {t} NOT NULL DEFAULT 'open', owner {t}, holder {t},
    token BIGINT NOT NULL DEFAULT 0, lease_until DOUBLE PRECISION NOT NULL DEFAULT 0,
    lease DOUBLE PRECISION NOT NULL DEFAULT 0, due_at DOUBLE PRECISION NOT NULL DEFAULT 0,
    priority BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (run, number));
CREATE INDEX chunk_open ON {s}.chunk(run, priority DESC, number) WHERE state = 'open';
CREATE INDEX chunk_later ON {s}.chunk(run, number) WHERE due_at > 0;
CREATE INDEX chunk_leased ON {s}.chunk(run, number) WHERE owner IS NOT NULL;
CREATE TABLE {s}.claim (
    run BIGINT NOT NULL, number BIGINT NOT NULL, token BIGINT NOT NULL, owner {t}, at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (run, number, token));
CREATE TABLE {s}.attempt (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    order_id BIGINT NOT NULL, n BIGINT NOT NULL, token BIGINT NOT NULL, permitted_at DOUBLE PRECISION NOT NULL,
    outcome {t} NOT NULL, code BIGINT, message {t}, done_at DOUBLE PRECISION NOT NULL);
CREATE INDEX attempt_order ON {s}.attempt(order_id);
CREATE TABLE {s}.evidence (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, order_id BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL,
    news {t} NOT NULL, source {t} NOT NULL, transaction_id {t}, amount {t}, currency {t}, detail {t},
    before {t} NOT NULL, after {t} NOT NULL, before_at DOUBLE PRECISION NOT NULL, conflict {t}, event_id BIGINT,
    decided BIGINT, times BIGINT NOT NULL DEFAULT 1, last_at DOUBLE PRECISION NOT NULL);
CREATE INDEX evidence_order ON {s}.evidence(order_id);
CREATE TABLE {s}.sweep (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, run BIGINT, doubted_at DOUBLE PRECISION NOT NULL,
    since {t} NOT NULL, until {t} NOT NULL, begun_at DOUBLE PRECISION NOT NULL, ended_at DOUBLE PRECISION,
    rows BIGINT NOT NULL DEFAULT 0, requests BIGINT NOT NULL DEFAULT 0, counted BIGINT NOT NULL DEFAULT 0, problem {t});
CREATE TABLE {s}.resolution (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, order_id BIGINT, run BIGINT, kind {t} NOT NULL,
    who {t} NOT NULL, why {t} NOT NULL, evidence {t}, at DOUBLE PRECISION NOT NULL);
CREATE INDEX resolution_order ON {s}.resolution(order_id);
CREATE TABLE {s}.ipn_event (
    id BIGINT PRIMARY KEY DEFAULT {s}.next_number(), transaction_id {t} NOT NULL, status_code BIGINT NOT NULL,
    amount {t} NOT NULL, request_id {t}, event BYTEA NOT NULL, body BYTEA NOT NULL, query {t} NOT NULL,
    peer {t} NOT NULL, received_at DOUBLE PRECISION NOT NULL, state {t} NOT NULL DEFAULT 'handled',
    tries BIGINT NOT NULL DEFAULT 0, done {t}, error {t}, conflict {t}, order_id BIGINT,
    times BIGINT NOT NULL DEFAULT 1, last_at DOUBLE PRECISION, doubt {t});
CREATE TABLE {s}.ipn_pending (
    event_id BIGINT PRIMARY KEY, owner {t} NOT NULL, holder {t} NOT NULL, due_at DOUBLE PRECISION NOT NULL,
    failed BIGINT NOT NULL DEFAULT 0);
CREATE INDEX ipn_pending_due ON {s}.ipn_pending(due_at);
CREATE INDEX ipn_pending_failed ON {s}.ipn_pending(event_id) WHERE failed <> 0;
CREATE UNIQUE INDEX ipn_event_fact ON {s}.ipn_event(transaction_id, status_code, amount);
CREATE INDEX ipn_event_request ON {s}.ipn_event(request_id, order_id) WHERE request_id IS NOT NULL;
CREATE INDEX ipn_event_dead ON {s}.ipn_event(id) WHERE state = 'dead';
CREATE INDEX ipn_event_doubt ON {s}.ipn_event(doubt, request_id) WHERE doubt IS NOT NULL;
CREATE INDEX ipn_event_disputed ON {s}.ipn_event(id) WHERE state = 'disputed';
CREATE INDEX ipn_event_nameless ON {s}.ipn_event(transaction_id) WHERE order_id IS NULL AND request_id IS NULL;
CREATE TABLE {s}.ipn_delivery (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, event_id BIGINT NOT NULL, digest BYTEA NOT NULL,
    body BYTEA NOT NULL, query {t} NOT NULL, peer {t} NOT NULL, received_at DOUBLE PRECISION NOT NULL,
    times BIGINT NOT NULL DEFAULT 1, last_at DOUBLE PRECISION);
CREATE UNIQUE INDEX ipn_delivery_once ON {s}.ipn_delivery(event_id, digest);
CREATE TABLE {s}.ipn_believed (id BIGINT PRIMARY KEY, event_id BIGINT NOT NULL);
CREATE INDEX ipn_believed_event ON {s}.ipn_believed(event_id);
CREATE TABLE {s}.sighting (
    request_id {t} PRIMARY KEY, transaction_id {t} NOT NULL, news {t} NOT NULL, amount {t}, currency {t},
    at DOUBLE PRECISION NOT NULL);
CREATE INDEX sighting_at ON {s}.sighting(at);
CREATE TABLE {s}.hearing (
    outbox {t} NOT NULL, state {t} NOT NULL, at DOUBLE PRECISION NOT NULL, PRIMARY KEY (outbox, state));
CREATE TABLE {s}.change (
    id BIGINT PRIMARY KEY, order_id BIGINT NOT NULL, outbox {t} NOT NULL, state {t} NOT NULL,
    at DOUBLE PRECISION NOT NULL, status {t} NOT NULL, owner {t}, holder {t},
    due_at DOUBLE PRECISION NOT NULL DEFAULT 0, tries BIGINT NOT NULL DEFAULT 0, done {t}, error {t});
CREATE INDEX change_due ON {s}.change(outbox, state, due_at) WHERE status = 'pending';
CREATE INDEX change_leased ON {s}.change(holder) WHERE holder IS NOT NULL;
CREATE INDEX change_dead ON {s}.change(id) WHERE status = 'dead';
CREATE INDEX change_open ON {s}.change(order_id) WHERE status IN ('pending', 'dead');
CREATE TABLE {s}.archive (
    id BIGINT PRIMARY KEY DEFAULT {s}.next_archive(), path {t} NOT NULL, who {t} NOT NULL, why {t} NOT NULL,
    begun_at DOUBLE PRECISION NOT NULL, ended_at DOUBLE PRECISION, orders BIGINT NOT NULL DEFAULT 0);
CREATE TABLE {s}.archived (
    id BIGINT PRIMARY KEY, request_id {t} NOT NULL, state {t} NOT NULL, attempt BIGINT NOT NULL,
    sent_before BIGINT NOT NULL, amount {t} NOT NULL, about BYTEA NOT NULL, body_sha256 BYTEA NOT NULL,
    transaction_id BYTEA, permitted_at DOUBLE PRECISION NOT NULL, updated_at DOUBLE PRECISION NOT NULL,
    archive BIGINT NOT NULL);
CREATE UNIQUE INDEX archived_request ON {s}.archived(request_id);
CREATE INDEX archived_mixed ON {s}.archived(lower(request_id)) WHERE {mixed};
CREATE INDEX archived_transaction ON {s}.archived(transaction_id) WHERE transaction_id <> {none};
CREATE TABLE {s}.duty (name {t} PRIMARY KEY, owner {t}, holder {t}, until DOUBLE PRECISION);
CREATE TABLE {s}.proposal (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, digest {t} NOT NULL, batch_id {t} NOT NULL,
    orders BIGINT NOT NULL, amount {t} NOT NULL, currency {t}, file {t} NOT NULL, who {t} NOT NULL,
    login {t} NOT NULL, machine {t} NOT NULL, at DOUBLE PRECISION NOT NULL);
CREATE INDEX proposal_digest ON {s}.proposal(digest);
CREATE TABLE {s}.approval (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, digest {t} NOT NULL, note {t} NOT NULL,
    who {t} NOT NULL, login {t} NOT NULL, machine {t} NOT NULL, at DOUBLE PRECISION NOT NULL,
    withdrawn_by {t}, withdrawn_login {t}, withdrawn_machine {t}, withdrawn_at DOUBLE PRECISION);
CREATE INDEX approval_digest ON {s}.approval(digest);
CREATE TABLE {s}.approval_rule (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, needed BIGINT NOT NULL, shared_logins BIGINT NOT NULL,
    why {t} NOT NULL, who {t} NOT NULL, login {t} NOT NULL, machine {t} NOT NULL, at DOUBLE PRECISION NOT NULL);
CREATE TABLE {s}.pace (
    id BIGINT PRIMARY KEY, rate DOUBLE PRECISION, next_at DOUBLE PRECISION NOT NULL DEFAULT 0,
    cool_at DOUBLE PRECISION NOT NULL DEFAULT 0, cool_for DOUBLE PRECISION NOT NULL DEFAULT 0, cool_why {t});
CREATE TABLE {s}.pace_named (
    owner {t} PRIMARY KEY, holder {t}, rate DOUBLE PRECISION NOT NULL, until DOUBLE PRECISION NOT NULL);
CREATE TABLE {s}.holder (name {t} PRIMARY KEY, begun_at DOUBLE PRECISION NOT NULL);
CREATE TABLE {s}.meta (key {t} PRIMARY KEY, value {t} NOT NULL);
CREATE TABLE {s}.tray (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, outbox {t} NOT NULL, request_id {t} NOT NULL UNIQUE,
    amount {t} NOT NULL, body BYTEA NOT NULL, body_sha256 BYTEA NOT NULL, not_before DOUBLE PRECISION NOT NULL,
    priority BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, problem {t});
CREATE TABLE {s}.watch (outbox {t} PRIMARY KEY, until DOUBLE PRECISION NOT NULL);
CREATE TABLE {s}.told (
    change_id BIGINT NOT NULL, handler {t} NOT NULL, at DOUBLE PRECISION NOT NULL, PRIMARY KEY (change_id, handler));
CREATE FUNCTION {s}.write_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE name text := (SELECT r.outbox FROM {s}.run r WHERE r.id = NEW.id >> {shift});
BEGIN
    IF name IS NULL THEN RETURN NULL; END IF;  -- in half the time that an INSERT of nothing takes
    INSERT INTO {s}.change (id, order_id, outbox, state, at, status)
    SELECT greatest((SELECT coalesce(max(c.id), 0) FROM {s}.change c) + 1, trunc(NEW.updated_at * 1000000)::bigint),
        NEW.id, name, NEW.state, NEW.updated_at, CASE WHEN EXISTS (
        SELECT 1 FROM {s}.hearing h WHERE h.outbox = name AND h.state = NEW.state) THEN 'pending' ELSE 'seen' END;
    RETURN NULL;
END$$;
CREATE TRIGGER outbox_changed AFTER UPDATE OF state ON {s}.outbox FOR EACH ROW
    WHEN (NEW.state NOT {unsent} AND NEW.state <> OLD.state) EXECUTE FUNCTION {s}.write_change();
CREATE TRIGGER archived_changed AFTER UPDATE OF state ON {s}.archived FOR EACH ROW
    WHEN (NEW.state <> OLD.state) EXECUTE FUNCTION {s}.write_change();
CREATE FUNCTION {s}.forget_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {s}.told t USING gone WHERE t.change_id = gone.id;
    RETURN NULL;
END$$;
CREATE TRIGGER change_forgotten AFTER DELETE ON {s}.change REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION {s}.forget_told();
"""

# What an application calls within a transaction of its own, as a user who may do nothing else here. Neither waits for
# those who write the journal: the one inserts into the tray, the other into `told`, which they never lock.
#
# Commits that notify are made one after the other, each with its own wait for the disk. So whoever has taken an order
# looks into the tray again and again for a while, and says so in `watch`: until then nobody notifies. Nor does who lays
# an order beside somebody who will notify, and whose lock, for which nobody ever waits, says so: what that one wakes
# looks again and again. Where that one is undone, or takes long, the look that comes each second finds both.
#
# Every statement of a function sees what was committed until it began (but in an application's REPEATABLE READ), so
# that an order which is taken out of the tray meanwhile is seen where it is then. An application's session keeps the
# plans it once made, maybe while there was next to nothing in the tables: by an index, then too.
_WITHIN = """
CREATE FUNCTION {s}.lay(
    wanted text, wanted_outbox text, new_id text, new_amount text, new_body bytea, new_digest bytea,
    due double precision, urgency bigint,
    OUT verdict text, OUT laid_at double precision, OUT digest bytea, OUT other_amount text, OUT why text
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE is_laid boolean;
BEGIN
    LOOP
        laid_at := extract(epoch FROM clock_timestamp());
        INSERT INTO {s}.tray (outbox, request_id, amount, body, body_sha256, not_before, priority, at)
        SELECT r.batch_id, new_id, new_amount, new_body, new_digest, due, urgency, laid_at
        FROM {s}.meta m, {s}.run r
        WHERE m.key = 'journal_id' AND m.value = wanted AND r.batch_id = wanted_outbox AND r.outbox = wanted_outbox
        ON CONFLICT (request_id) DO NOTHING;
        is_laid := FOUND;
        IF NOT is_laid THEN
            PERFORM 1 FROM {s}.meta WHERE key = 'journal_id' AND value = wanted;
            IF NOT FOUND THEN verdict := 'elsewhere'; RETURN; END IF;
            PERFORM 1 FROM {s}.run r WHERE r.batch_id = wanted_outbox AND r.outbox = wanted_outbox;
            IF NOT FOUND THEN verdict := 'no outbox'; RETURN; END IF;
            SELECT t.at, t.body_sha256, t.amount, t.problem INTO laid_at, digest, other_amount, why
            FROM {s}.tray t WHERE t.request_id = new_id;
            IF FOUND AND why IS NULL THEN verdict := 'there'; RETURN; END IF;
        END IF;
        -- one of a batch that is not loaded yet is laid beside it: it may be dropped with that
        SELECT o.body_sha256, o.amount INTO digest, other_amount FROM (
            SELECT b.body_sha256, b.amount FROM {s}.outbox b JOIN {s}.run r ON r.id = b.id >> {shift}
            WHERE b.request_id = new_id AND (r.state = 'ready' OR b.state <> 'planned' OR b.body_sha256 <> new_digest)
            UNION ALL SELECT body_sha256, amount FROM {s}.archived WHERE request_id = new_id) o;
        IF FOUND THEN
            IF is_laid THEN DELETE FROM {s}.tray t WHERE t.request_id = new_id; END IF;
            verdict := 'held'; RETURN;
        END IF;
        IF why IS NOT NULL THEN verdict := 'stuck'; RETURN; END IF;
        IF is_laid THEN
            PERFORM 1 FROM {s}.watch w WHERE w.outbox = wanted_outbox AND w.until > laid_at + {soon};
            IF NOT FOUND AND pg_try_advisory_xact_lock(hashtext({channel}), hashtext(wanted_outbox)) THEN
                PERFORM pg_notify({channel}, '{tray}');
            END IF;
            verdict := 'laid'; RETURN;
        END IF;
    END LOOP;  -- it was there, and is neither there nor anywhere else by now
END$$;
REVOKE ALL ON FUNCTION {s}.lay FROM PUBLIC;
CREATE FUNCTION {s}.mark_told(wanted text, changed bigint, handling text, OUT verdict text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    PERFORM 1 FROM {s}.meta WHERE key = 'journal_id' AND value = wanted;
    IF NOT FOUND THEN verdict := 'elsewhere'; RETURN; END IF;
    INSERT INTO {s}.told (change_id, handler, at)
    SELECT c.id, handling, extract(epoch FROM clock_timestamp()) FROM {s}.change c WHERE c.id = changed
    ON CONFLICT DO NOTHING;
    verdict := CASE WHEN FOUND THEN 'marked' ELSE 'told' END;
END$$;
REVOKE ALL ON FUNCTION {s}.mark_told FROM PUBLIC;
"""

# Functions and triggers that know their namespace by what they are bound to, and not by its name: a trigger by its
# table, a default by the number of its table, and what an application calls by the type of an argument that nobody
# passes. A namespace that is renamed takes them along, and one that gets its old name is left alone. The triggers fire
# also where ``session_replication_role`` is ``replica``, as a restore sets it; but a copy that follows by logical
# replication is sent the changes themselves.
_BOUND = """
ALTER TABLE {s}.holder ADD COLUMN lock {t};
ALTER TABLE {s}.outbox ADD COLUMN request_key {t} NOT NULL DEFAULT '';
ALTER TABLE {s}.archived ADD COLUMN request_key {t} NOT NULL DEFAULT '';
ALTER TABLE {s}.tray ADD COLUMN request_key {t} NOT NULL DEFAULT '';
ALTER TABLE {s}.tray DROP CONSTRAINT tray_request_id_key;
ALTER TABLE {s}.ipn_event RENAME COLUMN request_id TO request_key;
ALTER TABLE {s}.sighting RENAME COLUMN request_id TO request_key;
DROP INDEX {s}.outbox_request, {s}.outbox_mixed, {s}.archived_request, {s}.archived_mixed;
CREATE FUNCTION {s}.next_id(place regclass, OUT number bigint) LANGUAGE plpgsql AS
    $$BEGIN
    IF place = to_regclass('ipn_event') THEN  -- for each notification, and a sixth of the time
        number := (SELECT coalesce(max(id), 0) + 1 FROM ipn_event);
    ELSE
        EXECUTE 'SELECT coalesce(max(id), 0) + 1 FROM ' || place INTO number;
    END IF;
    END$$;
ALTER TABLE {s}.ipn_event ALTER id SET DEFAULT {s}.next_id('{q}.ipn_event');
ALTER TABLE {s}.run ALTER id SET DEFAULT {s}.next_id('{q}.run');
ALTER TABLE {s}.archive ALTER id SET DEFAULT {s}.next_id('{q}.archive');
DROP FUNCTION {s}.next_number(), {s}.next_run(), {s}.next_archive();
CREATE OR REPLACE FUNCTION {s}.write_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE name text; path text;
BEGIN
    IF current_setting('session_replication_role') = 'replica' AND EXISTS (SELECT 1 FROM pg_stat_activity a
        WHERE a.pid = pg_backend_pid() AND a.backend_type LIKE 'logical replication%') THEN RETURN NULL; END IF;
    IF current_schema() IS DISTINCT FROM TG_TABLE_SCHEMA THEN
        path := current_setting('search_path');
        PERFORM set_config('search_path', quote_ident(TG_TABLE_SCHEMA) || ', pg_temp', true);
    END IF;
    SELECT r.outbox INTO name FROM run r WHERE r.id = NEW.id >> {shift};
    IF name IS NOT NULL THEN  -- in half the time that an INSERT of nothing takes
        INSERT INTO change (id, order_id, outbox, state, at, status)
        SELECT greatest((SELECT coalesce(max(c.id), 0) FROM change c) + 1, trunc(NEW.updated_at * 1000000)::bigint),
            NEW.id, name, NEW.state, NEW.updated_at, CASE WHEN EXISTS (
            SELECT 1 FROM hearing h WHERE h.outbox = name AND h.state = NEW.state) THEN 'pending' ELSE 'seen' END;
    END IF;
    IF path IS NOT NULL THEN PERFORM set_config('search_path', path, true); END IF;
    RETURN NULL;
END$$;
CREATE OR REPLACE FUNCTION {s}.forget_told() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE path text;
BEGIN
    IF current_schema() IS DISTINCT FROM TG_TABLE_SCHEMA THEN
        path := current_setting('search_path');
        PERFORM set_config('search_path', quote_ident(TG_TABLE_SCHEMA) || ', pg_temp', true);
    END IF;
    DELETE FROM told t USING gone WHERE t.change_id = gone.id;
    IF path IS NOT NULL THEN PERFORM set_config('search_path', path, true); END IF;
    RETURN NULL;
END$$;
ALTER TABLE {s}.outbox ENABLE ALWAYS TRIGGER outbox_changed;
ALTER TABLE {s}.archived ENABLE ALWAYS TRIGGER archived_changed;
ALTER TABLE {s}.change ENABLE ALWAYS TRIGGER change_forgotten;
ALTER FUNCTION {s}.lay RENAME TO lay_before;
ALTER FUNCTION {s}.mark_told RENAME TO mark_told_before;
CREATE FUNCTION {s}.lay(
    wanted text, wanted_outbox text, new_id text, new_key text, new_amount text, new_body bytea, new_digest bytea,
    due double precision, urgency bigint, home {s}.meta DEFAULT NULL,
    OUT verdict text, OUT laid_at double precision, OUT digest bytea, OUT other_id text,
    OUT other_amount text, OUT why text
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE is_laid boolean; place name;
BEGIN
    SELECT n.nspname INTO place FROM pg_type y JOIN pg_namespace n ON n.oid = y.typnamespace
    WHERE y.oid = pg_typeof(home);
    PERFORM set_config('search_path', quote_ident(place) || ', pg_temp', true);
    LOOP
        laid_at := extract(epoch FROM clock_timestamp());
        INSERT INTO tray (outbox, request_id, request_key, amount, body, body_sha256, not_before, priority, at)
        SELECT r.batch_id, new_id, new_key, new_amount, new_body, new_digest, due, urgency, laid_at
        FROM meta m, run r
        WHERE m.key = 'journal_id' AND m.value = wanted AND r.batch_id = wanted_outbox AND r.outbox = wanted_outbox
        ON CONFLICT (request_key) DO NOTHING;
        is_laid := FOUND;
        IF NOT is_laid THEN
            PERFORM 1 FROM meta WHERE key = 'journal_id' AND value = wanted;
            IF NOT FOUND THEN verdict := 'elsewhere'; RETURN; END IF;
            PERFORM 1 FROM run r WHERE r.batch_id = wanted_outbox AND r.outbox = wanted_outbox;
            IF NOT FOUND THEN verdict := 'no outbox'; RETURN; END IF;
            SELECT t.at, t.body_sha256, t.request_id, t.amount, t.problem
            INTO laid_at, digest, other_id, other_amount, why FROM tray t WHERE t.request_key = new_key;
            IF FOUND AND why IS NULL THEN verdict := 'there'; RETURN; END IF;
        END IF;
        -- one of a batch that is not loaded yet is laid beside it: it may be dropped with that
        SELECT o.body_sha256, o.request_id, o.amount INTO digest, other_id, other_amount FROM (
            SELECT b.body_sha256, b.request_id, b.amount FROM outbox b JOIN run r ON r.id = b.id >> {shift}
            WHERE b.request_key = new_key AND (r.state = 'ready' OR b.state <> 'planned' OR b.body_sha256 <> new_digest)
            UNION ALL SELECT body_sha256, request_id, amount FROM archived WHERE request_key = new_key) o;
        IF FOUND THEN
            IF is_laid THEN DELETE FROM tray t WHERE t.request_key = new_key; END IF;
            verdict := 'held'; RETURN;
        END IF;
        IF why IS NOT NULL THEN verdict := 'stuck'; RETURN; END IF;
        IF is_laid THEN
            PERFORM 1 FROM watch w WHERE w.outbox = wanted_outbox AND w.until > laid_at + {soon};
            IF NOT FOUND AND {has_room}
                AND pg_try_advisory_xact_lock(hashtext(place), hashtext(wanted_outbox)) THEN
                PERFORM pg_notify(place, '{tray}');
            END IF;
            verdict := 'laid'; RETURN;
        END IF;
    END LOOP;  -- it was there, and is neither there nor anywhere else by now
END$$;
REVOKE ALL ON FUNCTION {s}.lay FROM PUBLIC;
CREATE FUNCTION {s}.mark_told(wanted text, changed bigint, handling text, home {s}.meta DEFAULT NULL, OUT verdict text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE place name;
BEGIN
    SELECT n.nspname INTO place FROM pg_type y JOIN pg_namespace n ON n.oid = y.typnamespace
    WHERE y.oid = pg_typeof(home);
    PERFORM set_config('search_path', quote_ident(place) || ', pg_temp', true);
    PERFORM 1 FROM meta WHERE key = 'journal_id' AND value = wanted;
    IF NOT FOUND THEN verdict := 'elsewhere'; RETURN; END IF;
    INSERT INTO told (change_id, handler, at)
    SELECT c.id, handling, extract(epoch FROM clock_timestamp()) FROM change c WHERE c.id = changed
    ON CONFLICT DO NOTHING;
    verdict := CASE WHEN FOUND THEN 'marked' ELSE 'told' END;
END$$;
REVOKE ALL ON FUNCTION {s}.mark_told FROM PUBLIC;
DO $$
DECLARE given record;
BEGIN
    FOR given IN SELECT replace(p.proname, '_before', '') AS what, a.grantee::regrole AS who
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace, aclexplode(p.proacl) a
        WHERE n.nspname = {channel} AND p.proname IN ('lay_before', 'mark_told_before')
        AND a.grantee NOT IN (0, p.proowner)
    LOOP EXECUTE format('GRANT EXECUTE ON FUNCTION {f}.%I TO %s', given.what, given.who); END LOOP;
END$$;
DROP FUNCTION {s}.lay_before, {s}.mark_told_before;
INSERT INTO {s}.meta (key, value) SELECT 'changes_since', CAST(coalesce(
    (SELECT min(at) FROM {s}.change WHERE status IN ('seen', 'handled')), extract(epoch FROM now())) AS TEXT)
    WHERE EXISTS (SELECT 1 FROM {s}.run);
CREATE INDEX IF NOT EXISTS outbox_failed ON {s}.outbox(id) WHERE state = 'failed';
"""

# Step n brings a namespace from version n to n + 1; as many of the same about as a file has.
STEPS: tuple[Step, ...] = (
    Step(about="make the tables", statements=(_TABLES + _WITHIN,), oldest=1),
    # of the version before is nobody who writes: one waits for the others by another lock
    Step(about="bind functions to their tables", statements=(_BOUND,), oldest=2),
)
_NEVER_SEALED = {"meta", "holder", "watch"}  # who is here, and where the journal has gone
_SOON = 1.0  # seconds that a transaction may still take after it has put an order, and be seen all the same
TRAY = "tray"  # what is told when an order lies there; of anything else only that something was committed
_CREATED = re.compile(r"CREATE TABLE [^;(]*\.(\w+) \(([^;]*)\);")
_TRIGGERS = re.findall(r"(CREATE TRIGGER (\w+) [^;]* ON \{s\}\.(\w+) [^;]*);", _TABLES)
_MADE = re.compile(r"CREATE TABLE (?:\S+\.)?(\w+)")
_ADDED = re.compile(r"ALTER TABLE [^;(]*\.(\w+) ADD COLUMN (\w+)")
_RENAMED = re.compile(r"ALTER TABLE [^;(]*\.(\w+) RENAME COLUMN (\w+) TO (\w+)")
_COLUMN = re.compile(r"(\w+) (?:BIGINT|DOUBLE|TEXT|BYTEA)\b")
# what SQLite has in no column of its own, and what it does not have
BEYOND_SQLITE: Mapping[str, Sequence[str]] = {
    "holder": ["begun_at", "lock", "name"],
    "tray": [
        *("id", "outbox", "request_id", "amount", "body", "body_sha256", "not_before", "priority", "at", "problem"),
        "request_key",
    ],
    "told": ["change_id", "handler", "at"],
    "watch": ["outbox", "until"],
}


def quoted(schema: str) -> str:
    """The name of a namespace, as a statement has it."""
    return '"' + schema.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text, as a statement has it."""
    return "'" + text.replace("'", "''") + "'"


def steps_for(schema: str, steps: Sequence[Step] = STEPS) -> tuple[Step, ...]:
    """The steps, for a namespace."""
    words = {
        "s": quoted(schema),
        "t": _TEXT,
        "none": NO_TRANSACTION,
        "shift": SHIFT,
        "soon": _SOON,
        "has_room": HAS_ROOM,
        "q": quoted(schema).replace("'", "''"),  # within a literal
        "f": quoted(schema).replace("'", "''").replace("%", "%%"),  # ... that is a format
        "channel": literal(schema),
        "tray": TRAY,
        "mixed": "request_id <> lower(request_id) AND request_id <> upper(request_id)",
        "unsettled": IS_UNSETTLED,
        "unsent": among(UNSENT),
    }
    return tuple(
        attrs.evolve(step, statements=tuple(statement.format(**words) for statement in step.statements))
        for step in steps
    )


def version_of(connection: PgConnection, schema: str) -> Version:
    """Of which version the tables of a namespace are.

    Raises:
        NotAJournal: It holds something else.
    """
    found = connection.execute(
        """SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = ? AND c.relkind IN ('r', 'p', 'v', 'm', 'f')""",
        (schema,),
    ).fetchall()
    tables = {name for (name,) in found}
    if not tables:
        return Version(0, 0)
    known: dict[str, str] = {}
    if {"meta", "run", "outbox"} <= tables:
        sql = f"SELECT key, value FROM {quoted(schema)}.meta WHERE key IN ('version', 'oldest')"  # noqa: S608
        known = dict(connection.execute(sql).fetchall())
    if "version" not in known:
        raise NotAJournal(f"the namespace {schema} holds something else")
    return Version(int(known["version"]), int(known.get("oldest", known["version"])))


def migrate(connection: PgConnection, schema: str, steps: Sequence[Step] = STEPS) -> Migration:
    """Bring the tables up to date in the transaction that is open, or make them; tells what was done.

    Raises:
        NotAJournal, JournalTooNew, JournalOutdated: The tables are none of ours; they are left as they were.
    """
    todo = migration(version_of(connection, schema), steps_for(schema, steps))
    if todo.before == 0 and not _exists(connection, schema):  # who may not make one may use one that is there
        connection.script(f"CREATE SCHEMA {quoted(schema)}")
    for statement in todo.statements:
        connection.script(statement)
    if todo.before < SINCE <= todo.after:
        tables = ("outbox", "archived", "tray")
        write_keys(connection, tables=tables, is_new=not todo.before, prefix=f"{quoted(schema)}.")
    if todo.steps:
        connection.executemany(
            f"""INSERT INTO {quoted(schema)}.meta (key, value) VALUES (?, ?)
            ON CONFLICT (key) DO UPDATE SET value = excluded.value""",  # noqa: S608 - the namespace alone
            [("version", str(todo.after)), ("oldest", str(todo.oldest))],
        )
    if todo.after == len(STEPS):
        _check_columns(connection, schema)
    return todo


def _check_columns(connection: PgConnection, schema: str) -> None:
    """Before the first release tables changed within one version: those that lack a column are left alone."""
    made = "".join(text for step in steps_for(schema) for text in step.statements)
    wanted = {f"{table}.{column}" for table, columns in _CREATED.findall(made) for column in _COLUMN.findall(columns)}
    wanted |= {f"{table}.{column}" for table, column in _ADDED.findall(made)}
    for table, before, after in _RENAMED.findall(made):
        wanted = wanted - {f"{table}.{before}"} | {f"{table}.{after}"}
    if lacking := wanted - columns_of(connection, schema):
        raise JournalOutdated(f"the journal has no {min(lacking)}, which one of version 1 has")


def columns_of(connection: PgConnection, schema: str) -> set[str]:
    """Every column of every table, as ``table.column``."""
    found = connection.execute(
        """SELECT c.relname || '.' || a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = ? AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped""",
        (schema,),
    )
    return {name for (name,) in found.fetchall()}


def names_of_tables(steps: Sequence[Step]) -> frozenset[str]:
    """The tables that a journal has made; others may be beside them, such as those of a queue."""
    return frozenset(name for step in steps for text in step.statements for name in _MADE.findall(text))


def tables_of(connection: Connection, schema: str, steps: Sequence[Step] = STEPS) -> dict[str, TableShape]:
    """Every table of the journal, with its columns and those that a row is known by."""
    ours = names_of_tables(steps)
    found = connection.execute(
        """SELECT c.relname, a.attname, coalesce(array_position(CAST(i.indkey AS smallint[]), a.attnum), -1)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
        WHERE n.nspname = ? AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY c.relname, a.attnum""",
        (schema,),
    ).fetchall()
    return tables_in(row for row in found if row[0] in ours)


def silent_triggers(connection: Connection, schema: str) -> list[str]:
    """The triggers that are not there, or may not fire."""
    found = connection.execute(
        """SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND t.tgenabled = 'A'""",
        (schema,),
    ).fetchall()
    return [name for _, name, _ in _TRIGGERS if (name,) not in found]


def let_fire(connection: PgConnection, schema: str, names: Collection[str]) -> None:
    """Make triggers anew, so that they fire whatever a session says."""
    s = quoted(schema)
    for statement, name, table in _TRIGGERS:
        if name in names:
            connection.script(
                f"DROP TRIGGER IF EXISTS {name} ON {s}.{table}; {statement.format(s=s)}; "
                f"ALTER TABLE {s}.{table} ENABLE ALWAYS TRIGGER {name}"
            )


def seal(connection: Connection, schema: str, words: str, steps: Sequence[Step] = STEPS) -> None:
    """Let nobody write any more, whatever they have read: an application's own transaction, too."""
    assert isinstance(connection, PgConnection)
    s = quoted(schema)
    raises = f"RAISE EXCEPTION USING ERRCODE = '{MOVED}', MESSAGE = {literal(words)};"
    connection.script(
        f"CREATE FUNCTION {s}.refuse() RETURNS trigger LANGUAGE plpgsql AS $refuse$BEGIN {raises} END$refuse$"
    )
    for table in tables_of(connection, schema, steps):
        if table not in _NEVER_SEALED:
            connection.script(
                f"CREATE TRIGGER moved BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {s}.{quoted(table)} "
                f"FOR EACH STATEMENT EXECUTE FUNCTION {s}.refuse(); "
                f"ALTER TABLE {s}.{quoted(table)} ENABLE ALWAYS TRIGGER moved"
            )


def unseal(connection: Connection, schema: str) -> None:
    """Let everybody write again."""
    assert isinstance(connection, PgConnection)
    connection.script(f"DROP FUNCTION {quoted(schema)}.refuse() CASCADE")


def go_on_after(connection: PgConnection, schema: str, steps: Sequence[Step] = STEPS) -> None:
    """Let the numbers that the database gives go on after the highest ones, and the planner know of the rows."""
    found = connection.execute(
        """SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND a.attidentity <> ''""",
        (schema,),
    ).fetchall()
    ours = tables_of(connection, schema, steps)
    for table, column in found:
        if table not in ours:
            continue
        name = f"{quoted(schema)}.{quoted(table)}"
        connection.execute(
            f"""SELECT setval(pg_get_serial_sequence(?, ?), highest) FROM (SELECT max({quoted(column)}) AS highest
            FROM {name}) AS rows WHERE highest IS NOT NULL""",  # noqa: S608 - names alone
            (name, column),
        )
    for table in ours:
        connection.execute(f"ANALYZE {quoted(schema)}.{quoted(table)}")


def _exists(connection: PgConnection, schema: str) -> bool:
    return connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = ?", (schema,)).fetchone() is not None
