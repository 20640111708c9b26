"""Who judges a world.

After every turn of the loop: no order was carried out twice, whatever its letters. At every look (twelve while there is
trouble, then every twenty seconds): nothing that was written down vanished, and no state went backwards. At the end:
all the rest.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import attrs
from bulk.worlds import contradiction, payout

from payments_async._cli.next_steps import may_be_paid_again
from payments_async.journal import Journal, JournalError, State
from payments_async.journal._records import INTERVAL, LISTS, ListScan, Permit
from payments_async.journal._statements._entries import SHIFT
from payments_async.outbox._scans import Findings, ListScanner
from payments_async.testing._simulation.loops import START
from payments_async.testing._simulation.machine import stamp_of
from payments_async.testing._simulation.processes import CURRENT, Process

if TYPE_CHECKING:
    from simulation.worlds import World

ENDS = {"successful", "failed", "reversed", "rejected", "cancelled", "parked"}
TOLD_OF = ("successful", "failed", "rejected", "cancelled")
UNSENT = {"planned", "sending", "unknown", "parked"}
# What an order never becomes again, once it was in a state.
BACKWARDS = {
    "successful": UNSENT | {"accepted", "rejected", "cancelled"},
    "reversed": UNSENT | {"accepted", "rejected", "cancelled"},
    "failed": UNSENT | {"accepted", "rejected", "cancelled"},
    "accepted": UNSENT - {"parked"} | {"rejected", "cancelled"},
    "cancelled": UNSENT | {"accepted", "successful", "failed", "rejected"},
}
_DAY = 86_400.0  # seconds
_MOMENTS = 1.0  # seconds that a permit or the beginning of a list may take
_APART = 60.0  # ... by which the clocks of machines that share a journal may differ
_connect = sqlite3.connect


@attrs.frozen
class Row:
    """An order as the journal's file has it."""

    request_id: str
    batch_id: str
    state: str
    conflict: str | None
    tries: int
    evidence: int


# The number of a batch stands in the upper bits of its orders' numbers.
_ORDERS = """SELECT o.request_id, r.batch_id, o.state, o.conflict,
  (SELECT count(*) FROM attempt a WHERE a.order_id = o.id), (SELECT count(*) FROM evidence e WHERE e.order_id = o.id)
  FROM outbox o JOIN run r ON r.id = o.id >> ? ORDER BY o.id"""
_BY_LISTS = "SELECT order_id, source, after FROM evidence WHERE before = 'sending' AND source LIKE 'list%'"
_COUNTS = "SELECT (SELECT count(*) FROM run WHERE paused_at IS NOT NULL), (SELECT count(*) FROM ipn_event)"


class Judge:
    """Looks at a world from outside: at the service's ledger, and at the journal's file.

    Attributes:
        rows: Orders at the last look, by their ids in small letters.
        waits_for_a_person: Whether there was anything parked or paused then, as far as is known.
        receives: The application that has told the service its address.
        forged: Bodies of notifications that are not true.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._ledger = world.sandbox.ledger
        self._carried_out = self._ledger._rows  # whose length is asked for after every turn
        self._deliveries = world.sandbox._service.notifier.deliveries
        self.rows: dict[str, Row] = {}
        self.waits_for_a_person = True
        self.receives = 0
        self.forged: set[bytes] = set()
        self._executed: dict[str, list[int]] = {}  # which of the ledger's rows, by the id in small letters
        self._listed_at: list[float] = []  # when each of the ledger's rows was first to be seen in a list
        self._lists: dict[str, list[float]] = {}  # when a complete one was begun, by the batch it was read for
        self._seen = self._delivered = self._events = 0
        self._looked_at: bytes | None = None  # the stamp of the file then

    # --- after every turn

    def after_turn(self) -> None:
        """Look at the service, unless nothing happened there, as in most turns."""
        length = len(self._carried_out)
        if not (length == self._seen == len(self._listed_at) and len(self._deliveries) == self._delivered):
            self._look_at_the_service(length)

    def _look_at_the_service(self, length: int) -> None:
        """Each order was carried out once at most; the receiver may die right after a 200."""
        world, ledger = self._world, self._ledger
        if len(self._listed_at) != length:
            young = world.sandbox._service._young
            listed = young[0][0] if young else length
            self._listed_at += [world.loop.now] * (listed - len(self._listed_at))
        if length != self._seen:
            for number in range(self._seen, len(ledger)):
                execution = ledger[number]
                world.say("service", "carries out", execution.request_id)
                is_theirs = execution.request_id in world.elsewhere.theirs  # who pays there asks no approval of ours
                if world.has("approves") and execution.batch_id not in {"shop", *world.approved} and not is_theirs:
                    world.faults.append(f"carried out without an approval: {execution.request_id}")
                before = self._executed.setdefault(execution.request_id.lower(), [])
                if not all(self._is_forgotten(one) or self._is_unlisted(one) for one in before):
                    world.faults.append(f"carried out more than once: {execution.request_id}, at {world.loop.time():g}")
                before.append(number)
            self._seen = len(ledger)
        if len(self._deliveries) != self._delivered:
            new = world.sandbox.deliveries[self._delivered :]
            self._delivered += len(new)
            for attempt in new:
                world.say("service", f"notified, answer {attempt.status}:", attempt.request_id)
            if any(attempt.status == 200 for attempt in new) and world.has("dies_after_200") and not world.is_calm:
                process = world.lives.get(self.receives)
                if process is not None and not process.is_dead and world.loop.chance.random() < 0.2:
                    world.say(process, "KILL after a 200")
                    world.kill(self.receives, 1.0)

    def _is_forgotten(self, number: int) -> bool:
        """Whether nothing could tell that the service has carried this out, as the README says.

        All on the machine that could was put back since, or lost; and it was in no complete list that was read since,
        or, where the journal may have known something new just before, no list was due.
        """
        machine, execution = self._world.machine, self._world.sandbox.ledger[number]
        if machine.forgot_all_at is None or execution.created_on.timestamp() - START > machine.forgot_all_at:
            return False
        listed_at = self._listed_at[number] if number < len(self._listed_at) else float("inf")
        lists = [at for at in self._lists.get(execution.batch_id, ()) if at >= machine.forgot_all_at]
        return not any(at >= listed_at for at in lists) and (bool(lists) or not machine.is_looked_for)

    def _is_unlisted(self, number: int) -> bool:
        """Whether a snapshot of this machine has paid it, and no list could show that when the machine woke."""
        elsewhere = self._world.elsewhere
        is_theirs = self._world.sandbox.ledger[number].request_id.lower() in elsewhere.snapshot
        return is_theirs and not self._is_listed(number, elsewhere.woken_at)

    def _is_listed(self, number: int, at: float) -> bool:
        """Whether a list that is begun at a moment shows a row of the ledger."""
        return number < len(self._listed_at) and self._listed_at[number] <= at

    def planned(self) -> list[Row]:
        """Orders that are planned in the journal's file now."""
        found = self._read((_ORDERS, SHIFT)) or [[]]
        return [row for row in (Row(*one) for one in found[0]) if row.state == "planned"]

    def follow_lists(self) -> None:
        """From now on, know which complete lists the journal was told of; once in a process of ours."""
        begin, end, loop = Journal.begin_list_scan, Journal.end_list_scan, self._world.loop
        begun: dict[tuple[Journal, int], tuple[str, float]] = {}

        async def begins(journal: Journal, batch_id: str | None, **days: Any) -> ListScan:
            at = loop.now
            scan = await begin(journal, batch_id, **days)
            begun[journal, scan.id] = batch_id or "", at
            return scan

        async def ends(journal: Journal, scan: ListScan, **terms: Any) -> None:
            await end(journal, scan, **terms)
            batch_id, at = begun.pop((journal, scan.id), ("", loop.now))
            if scan.problem is None:
                self._lists.setdefault(batch_id, []).append(at)

        Journal.begin_list_scan, Journal.end_list_scan = begins, ends  # type: ignore[assignment,method-assign]

    def follow_parking(self) -> None:
        """From now on, know by which lists orders are parked; where clocks are right and nothing is forgotten."""
        world, loop = self._world, self._world.loop
        permit, put, scan, park = Journal.permit, Journal.put, ListScanner.scan, Findings.park
        sent: dict[str, float] = {}  # when each was permitted last
        lists: dict[Process | None, list[tuple[float, float]]] = {}  # those that count, by who read them

        async def permits(journal: Journal, *arguments: Any, **options: Any) -> Any:
            granted = await permit(journal, *arguments, **options)
            if isinstance(granted, Permit):
                sent[granted.request_id] = loop.now
            return granted

        async def puts(journal: Journal, *arguments: Any, **options: Any) -> Any:
            placed = await put(journal, *arguments, **options)
            if placed.permit is not None:
                sent[placed.permit.request_id] = loop.now
            return placed

        async def scans(scanner: ListScanner, *arguments: Any) -> Any:
            began = loop.now
            reading = await scan(scanner, *arguments)
            if reading.counted:
                lists.setdefault(CURRENT.get(), []).append((began, loop.now))
            return reading

        async def parks(findings: Findings, order: Any, *arguments: Any) -> None:
            was = order.state
            await park(findings, order, *arguments)
            if was is not State.UNKNOWN or order.state is not State.PARKED or world.machine.has_forgotten:
                return
            at = sent.get(order.request_id, 0.0) + world.plan.grace - _MOMENTS
            at -= _APART * world.has("pg_skew")  # the server dates the permit, and this machine the list
            counted = [one for one in lists.get(CURRENT.get(), ()) if one[0] >= at]
            # the last one is being read
            apart = loop.now - counted[0][1] if counted else 0.0
            if len(counted) < LISTS or apart < min(INTERVAL, world.plan.grace) - _MOMENTS:
                world.faults.append(f"parked by {len(counted)} lists within {apart:g} s: {order.request_id}")

        Journal.permit, Journal.put = permits, puts  # type: ignore[method-assign]
        ListScanner.scan, Findings.park = scans, parks  # type: ignore[method-assign]

    # --- at every look

    async def look(self) -> None:
        """Compare the journal with what it was: a file at every look, a database once all is calm."""
        if self._world.plan.is_postgres:
            if self._world.is_calm and (rows := await self._entries()) is not None:
                self._compare(rows)
            return
        stamp = stamp_of(self._world.machine.place)
        if stamp is not None and stamp == self._looked_at:
            return
        found = self._read((_ORDERS, SHIFT), (_COUNTS,))
        if found is None:
            return
        self._looked_at = stamp
        self._compare({row[0].lower(): Row(*row) for row in found[0]})
        ((paused, events),) = found[1]
        self.waits_for_a_person = bool(paused) or any(row.state == "parked" for row in self.rows.values())
        if events < self._events and not self._world.machine.has_forgotten:
            self._world.faults.append(f"{self._events - events} notifications vanished")
        self._events = events

    def _compare(self, rows: dict[str, Row]) -> None:
        """Nothing vanished, and no state went backwards."""
        world = self._world
        for key, before in () if world.machine.has_forgotten else self.rows.items():
            row = rows.get(key)
            if row is None:
                world.faults.append(f"{key} vanished from the journal")
                continue
            if row.state in BACKWARDS.get(before.state, ()):
                world.faults.append(f"{key} was {before.state}, and is {row.state}")
            if row.evidence < before.evidence or row.tries < before.tries:
                world.faults.append(f"{key}: evidence or tries vanished: {before} {row}")
        for key, row in rows.items():
            before_state = self.rows[key].state if key in self.rows else None
            if row.state != before_state:
                world.say("journal", f"{before_state or 'new'} -> {row.state}:", row.request_id)
        self.rows = rows

    async def _entries(self) -> dict[str, Row] | None:
        """What the journal tells a process of its own; ``None`` where it cannot be read."""
        world, viewer = self._world, Process(self._world.loop, "viewer")
        world.machine.bear(viewer, -1)

        async def read() -> dict[str, Row]:
            async with world.machine.journal(None) as journal:
                entries = [entry async for entry in journal.entries()]
            return {
                one.request_id.lower(): Row(one.request_id, one.batch_id, one.state.value, one.conflict, 0, 0)
                for one in entries
            }

        try:
            return dict(await viewer.start(read()))
        except JournalError as error:
            world.say("nothing can be read:", repr(error))
            viewer.kill()
            world.machine.mend(error)
            return None

    def _read(self, *statements: tuple[Any, ...]) -> list[list[tuple[Any, ...]]] | None:
        """What the file says, read from outside of the simulation; ``None`` while there is none."""
        path = self._world.machine.place
        if not path.exists():
            return None
        database = _connect(f"file:{path}?mode=ro", uri=True)
        try:
            return [database.execute(sql, values).fetchall() for sql, *values in statements]
        except sqlite3.OperationalError as error:
            if "no such table" in str(error) or self._world.machine.exists:
                return None
            raise
        except sqlite3.DatabaseError:
            if self._world.machine.exists:
                return None
            raise
        finally:
            database.close()

    # --- whether it is over

    def _status_of(self) -> dict[str, str]:
        return {one.request_id.lower(): str(one.status) for one in self._world.sandbox.ledger}

    def rests(self, before: dict[str, Row]) -> bool:
        """Whether everything is final, or stays open for a reason, and every handler was told.

        Args:
            before: How orders stood at the look before: one that is open and has moved since may be moving still.
        """
        is_moving = before != self.rows and any(row.state not in ENDS for row in self.rows.values())
        return not (is_moving or self._unrest())

    def _unrest(self) -> list[str]:
        return [*self._open(), *self._untold()]

    def _open(self) -> list[str]:
        """What has no end, and is to have one."""
        world, plan, ledger = self._world, self._world.plan, self._status_of()
        wanted = [payout(number).request_id for number in range(plan.orders)]
        wanted += [payout(1000 * (w + 1) + one).request_id for w in range(plan.batches) for one in range(plan.batch)]
        wanted += [payout(3000 + number).request_id for number in range(plan.gifts)]
        found = []
        for request_id in wanted:
            row, status = self.rows.get(request_id.lower()), ledger.get(request_id.lower(), "")
            if row is None:
                if request_id not in world.machine.known:
                    found.append(f"{request_id} was never put")
            elif row.state in ENDS:
                if row.state == "parked" and world.has("sends_again") and not status:
                    found.append(f"{request_id} is parked, and a person will send it again")
            elif not self._may_stay(row, status):
                found.append(f"{request_id} is {row.state}; with the service {status or 'nothing'}")
        return found

    def _untold(self) -> list[str]:
        """What handlers were to be told, and were not."""
        facts = [
            (f"note {one}", key, row.state)
            for key, row in self.rows.items()
            for one in range(self._world.plan.handlers)
            if row.state in TOLD_OF and row.batch_id in ("shop", "gifts") and not row.conflict
        ]
        return [
            f"{name} was not told that {key} is {state}"
            for name, key, state in facts
            if (name, key, state) not in self._world.told
        ]

    def _may_stay(self, row: Row, status: str) -> bool:
        """Whether an order may stay open for ever.

        An accepted one may where the service has not ended it. Or its notification is lost, and no status filter is
        believed: the service ignores the filter, or never counts its rows. An unknown one may where
        the service never had it, and no list proves that: none counts its rows, or shows an order of the same batch,
        or of the day at which a clock was that was days behind.
        A planned one may where the journal was put back: its outbox waits for such lists, until a person names an
        order of its own.
        """
        has = self._world.has
        if row.state == "accepted":
            return "PROCESSING" in status or has("ignores_status_filter") or has("no_total")
        if row.state == "planned":
            return self._world.machine.has_forgotten and has("no_total") and not status
        is_proved = (
            not has("no_total")
            and not self._is_misdated()
            and row.batch_id in {one.batch_id for one in self._world.sandbox.ledger}
        )
        return row.state == "unknown" and not status and not is_proved

    def _is_misdated(self) -> bool:
        """Whether orders may be dated days before others, by a clock that is behind."""
        set_back = (one.seconds for one in self._world.plan.blows if one.kind in ("clock", "own_clock"))
        return any(seconds < -_DAY for seconds in set_back)

    # --- at the end

    async def ailments(self) -> list[str]:
        """Which outbox of a living application does not do well: no worker is dead."""
        world, found = self._world, []
        for number, outbox in sorted(world.outboxes.items()):
            health = await world.lives[number].start(outbox.health())
            words = "; ".join(one.what for one in health.problems if one.stops)
            never_come = world.has("no_total") or not world.sandbox.ledger  # lists that are complete, and show an order
            waits = never_come and "complete lists" in words
            if not health.is_well and not waits:
                found.append(f"{world.lives[number]} is not well: {words}")
            if any((health.handlers.dead, health.handlers.pending)):
                found.append(
                    f"{world.lives[number]}: {health.handlers.pending} untold, {health.handlers.dead} dead letters"
                )
        return found

    async def judge(self) -> None:
        """Everything that can be judged when all is closed."""
        world = self._world
        await self.look()
        faults, executions = world.faults, {one.request_id.lower(): one for one in world.sandbox.ledger}
        faults += [
            f"lost: {request_id}" for request_id in sorted(world.promised - set(self.rows) - world.machine.known)
        ]
        for key, row in sorted(self.rows.items()):
            wrong = contradiction(row.state, executions.get(key))
            if wrong is None or wrong.endswith("REVERSED"):  # which is looked for where a person asks
                continue
            is_theirs = row.request_id in world.elsewhere.theirs or key in world.elsewhere.snapshot
            if row.state == "cancelled" and row.conflict and (is_theirs or world.machine.forgot_all_at is not None):
                continue  # a person cancelled what this machine did not know of; the list has told them since
            faults.append(f"{key} {wrong}")
        if (
            not world.machine.has_forgotten
        ):  # a journal that was put back tells again what it has forgotten to have told
            faults += [f"told under {len(ids)} ids: {fact}" for fact, ids in sorted(world.told.items()) if len(ids) > 1]
        if found := self._unrest():
            faults.append("not at rest: " + "; ".join(found))
        self._judge_trail()
        self._judge_inbox()
        self._judge_forgeries()
        self._judge_leases()
        self._judge_closed()
        await self._judge_advice(executions)
        faults += world.loop.problems
        faults += [
            f"an error that no one retrieved: {task!r}"
            for task in world.loop.every
            # aiohttp's server counts on a step before the loss of its connection, which the seed may let overtake it
            if task.done() and task._log_traceback and "web_protocol" not in repr(task)
        ]
        world.loop.note(sorted((key, row.state) for key, row in self.rows.items()), world.loop.steps)

    def _judge_trail(self) -> None:
        """What is being sent is moved by its own answer, a notification or a takeover, and by no list."""
        (moved,) = [[]] if self._world.plan.is_postgres else self._read((_BY_LISTS,)) or [[]]
        self._world.faults += [f"a list has moved an order that was being sent: {one}" for one in moved]

    def _judge_inbox(self) -> None:
        """What was answered 200 is stored; where answers come twice, the second one may stand for another."""
        if self._world.plan.is_postgres or self._world.has("twice") or self._world.machine.has_forgotten:
            return
        found = self._read(("SELECT body FROM ipn_delivery",), ("SELECT body FROM ipn_event",)) or ()
        stored = {body for rows in found for (body,) in rows}
        lost = [one for one in self._world.sandbox.deliveries if one.status == 200 and one.body not in stored]
        for attempt in lost[:3]:
            self._world.faults.append(f"a notification was answered 200 and is not stored: {attempt.request_id}")

    def _judge_forgeries(self) -> None:
        """Whatever was forged is evidence of nothing; a service that reverses may come to say the same."""
        if self.forged and not self._world.plan.is_postgres and not self._world.has("reversed"):
            (believed,) = self._read(("SELECT body FROM ipn_event WHERE doubt IS NULL",)) or [[]]
            self._world.faults += [
                f"a forged notification was believed: {body!r}" for (body,) in believed if body in self.forged
            ]

    def _judge_leases(self) -> None:
        """A process that is gone holds nothing; a duty that a power cut has left behind runs out within its minute."""
        now = self._world.loop.wall_clock
        held = self._read(
            ("SELECT run, number, owner FROM chunk WHERE owner IS NOT NULL AND lease_until > ?", now),
            ("SELECT key, owner FROM lease WHERE kind = 'duty' AND until - span / 2 > ?", now),
        )
        self._world.faults += [f"a lease without a living owner: {one}" for rows in held or () for one in rows]

    def _judge_closed(self) -> None:
        """A process that was closed, and not killed, has left no task, connection, port or database behind."""
        world = self._world
        for process in world.closed:
            left = [f"task {task!r}" for task in world.loop.every if task.owner is process and not task.done()]
            left += world.left.get(process, [])
            world.faults += [f"{process} was closed and has left {one}" for one in left[:3]]

    async def _judge_advice(self, executions: dict[str, Any]) -> None:
        """What may have been paid is called so."""
        world = self._world

        async def read() -> list[str]:
            found = []
            async with world.machine.journal(None) as journal:
                async for entry in journal.entries():
                    ended = str(getattr(executions.get(entry.request_id.lower()), "status", ""))
                    said = await may_be_paid_again(journal, entry, await journal.history(entry.request_id))
                    is_unpaid = ended in ("", "FAILED", "REVERSED")
                    if said.startswith("Yes") and (not is_unpaid or entry.state is State.UNKNOWN):
                        found.append(f"{entry.request_id} ended {ended}, and is called fit to be paid again: {said}")
            return found

        if self.rows:
            world.faults += await Process(world.loop, "viewer").start(read())
