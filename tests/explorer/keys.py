"""When two states are one: what no rule compares is left out, what is compared is kept as the comparison has it.

Of moments only their age counts (less than a minute, less than the period of grace, more), and whether a lease is good;
of tokens and attempts, which are equal; of names, who is alive. Counters and the numbers of rows count for nothing.
Orders and workers that are alike may change places.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

from explorer.worlds import Explored, World

from payments_async.journal import Signal
from payments_async.journal._records import digest_of_owner
from payments_async.journal.contract import Permit

_SILENT = "lease_expired", "not_sent"


class Keys:
    """Gives each state its key."""

    def __init__(self, explored: Explored) -> None:
        self._explored = explored
        self._at = explored.columns
        self._places = list(permutations(explored.numbers))

    def key(self, world: World) -> int:
        """Of states that are one the same number."""
        parts = self._parts(world)
        return min(hash(self._placed(parts, places)) for places in self._places)

    def _placed(self, parts: Any, places: tuple[int, ...]) -> Any:
        """The parts, with the orders in this sequence."""
        orders, workers, rest, tables = parts
        renamed = {number: place for place, number in enumerate(places, 1)}
        known = tuple(orders[number] for number in places)
        named = tuple(
            sorted(
                (*facts, tuple(sorted(renamed[one] for one in todo)), renamed.get(of, 0))
                for *facts, todo, of in workers
            )
        )
        return known, named, rest, tables

    def _parts(self, world: World) -> Any:
        """What the key is made of: of each order, of each worker, and of all."""
        now, at = world.now, self._at
        alive = {name: worker for worker in world.workers if worker.at != "dead" for name in (worker.owner, worker.who)}

        def age(moment: float | None) -> int:
            if not moment:
                return -1
            gone = now - moment
            return 0 if gone < 60.0 else 1 if gone < 900.0 else 2

        chunk = at["chunk"]
        chunks = {row[chunk["number"]]: row for row in world.table("chunk")}
        run = world.table("run")[0]
        doubted_at = run[at["run"]["quarantined_at"]] or 0.0
        claim = at["claim"]
        claims = [(row[claim["number"]], row[claim["token"]], row[claim["owner"]]) for row in world.table("claim")]
        unsent: dict[int, int] = {}
        attempt = at["attempt"]
        for row in world.table("attempt"):
            if row[attempt["outcome"]] == Signal.NOT_SENT:
                unsent[row[attempt["order_id"]]] = unsent.get(row[attempt["order_id"]], 0) + 1
        trails: dict[int, list[tuple[Any, ...]]] = {}
        seen = at["evidence"]
        for row in world.table("evidence"):
            trails.setdefault(row[seen["order_id"]], []).append(
                (
                    row[seen["news"]],
                    _source(row[seen["source"]]),
                    row[seen["transaction_id"]] or "",
                    row[seen["before"]],
                    row[seen["after"]],
                    row[seen["conflict"]] is not None,
                    row[seen["decided"]] is not None,
                )
            )
        event = at["ipn_event"]
        events: dict[str, list[tuple[Any, ...]]] = {}
        for row in world.table("ipn_event"):
            name = row[event["request_key"]]
            known = tuple(row[event[one]] for one in ("transaction_id", "status_code", "state", "doubt"))
            known = (*known[:-1], known[-1] or "")
            events.setdefault(name, []).append((*known, row[event["order_id"]] is None, row[event["conflict"]] is None))
        sighted = {row[at["sighting"]["request_key"]] for row in world.table("sighting")}
        rows = self._explored.rows(world)
        listed = {one[0]: one[1:] for one in world.lister.sought} if world.lister is not None else {}
        absences = dict(world.lister.absences) if world.lister is not None else {}

        def last_of(number: int, permit: Permit) -> tuple[bool, ...]:
            row = rows.get(number)
            if row is None:
                return ()
            return (
                row["attempt"] == permit.attempt,
                row["token"] == permit.token,
                row["permitted_at"] == permit.at,
                bool(permit.sent_before),
            )

        orders: dict[int, Any] = {}
        for number in self._explored.numbers:
            row = rows.get(number)
            request_id = self._explored.orders[number].request_id
            told: tuple[Any, ...] = ()
            if row is not None:
                of, token = row["id"], row["token"]
                trail = trails.get(of, [])
                turns = [one[0] for one in trail if one[3] != one[4] and one[0] != "swept_clean_twice"]
                home = chunks[(of & ((1 << 28) - 1)) // 500]
                place = home[chunk["number"]]
                raised = home[chunk["token"]] - sum(
                    1 for where, of_claim, _ in claims if where == place and of_claim > token
                )
                told = (
                    row["state"],
                    row["attempt"] - unsent.get(of, 0),
                    row["attempt"] > 0,
                    row["sent_before"],
                    row["transaction_id"],
                    row["conflict"] is not None,
                    age(row["permitted_at"]) if row["state"] in ("sending", "unknown") else -1,
                    row["not_before"] > now,
                    row["held_at"] is not None,
                    raised == token,
                    home[chunk["token"]] == token,
                    place,
                    tuple(sorted(set(trail))),
                    turns[-1:],
                    tuple(
                        sorted(
                            (
                                left.token == token,
                                left.is_unsent(of, row["attempt"]),
                                any(
                                    where == left.number and of_claim == left.token and owner is not None
                                    and digest_of_owner(owner) == left.owner
                                    for where, of_claim, owner in claims
                                ),
                            )
                            for left in world.left
                            if left.token == token
                        )
                    ),
                )  # fmt: skip
            sought = listed.get(request_id)
            if sought is not None:
                is_last = row is not None and sought[5] == row["permitted_at"]
                grace = sought[0] == "unknown" and age(sought[5])
                is_late = grace == 2 and world.lister is not None and world.lister.began - sought[5] < 900.0
                lists, at_tick, since = absences.get(request_id, (0, 0.0, 0.0))
                missed = (lists, bool(lists) and now - at_tick < 60.0, since)
                sought = (*(one or "" for one in sought[:5]), grace, is_late, *sought[6:], is_last, *missed)
            orders[number] = repr(
                (
                    told,
                    sorted(events.get(request_id, ())),
                    request_id in sighted,
                    sorted(
                        (one.owner and _place(alive, one.owner), one.answer or "", one.transaction,
                         row is not None and (row["attempt"], row["token"]) == (one.attempt, one.token))
                        for one in world.flights if one.order == number
                    ),
                    [one[1:] for one in world.ledger if one.order == number],
                    sorted(one for of_order, one in world.told if of_order == number),
                    sorted(kind for kind, of_order in world.forged if of_order == number),
                    world.words[number],
                    sought,
                    world.looked is not None and world.looked[0] == number
                    and (row is not None and row["updated_at"] <= world.looked[1]) + 1,
                )
            )  # fmt: skip
        workers = []
        for worker in world.workers:
            held = ()
            if worker.chunk is not None:
                home = chunks[worker.chunk.number]
                held = (
                    worker.chunk.number,
                    home[chunk["token"]] == worker.chunk.token,
                    home[chunk["owner"]] == worker.owner,
                    worker.good_until > now,
                    worker.good_until - now < 15.0,
                )
            number = 0 if worker.permit is None else self._explored.ids[worker.permit.request_id]
            permit = () if worker.permit is None else last_of(number, worker.permit)
            outcome = (
                () if worker.outcome is None else (str(worker.outcome.signal), worker.outcome.transaction_id or "")
            )
            marks = worker.permit is not None and any(
                (worker.permit.id, worker.permit.attempt) in marks for _, marks in worker.marks
            )
            proof = sorted(
                {
                    (number_of, all(attempt_of < row["attempt"] for id_of, attempt_of in marks if id_of == row["id"]))
                    for (_, where, token), marks in worker.marks
                    for number_of, row in rows.items()
                    if number_of and row["token"] == token and row["state"] in ("sending", "unknown", "parked")
                }
            )
            todo = [self._explored.ids[one.request_id] for one in worker.todo]
            workers.append((worker.at, repr((held, permit, outcome, marks, len(proof) and proof)), todo, number))
        lister = world.lister
        listing = None
        if lister is not None:
            begun = world.table("sweep")[-1] if world.table("sweep") else None
            listing = (
                lister.step, lister.list_scans, lister.asked, lister.shown, lister.waits_until > now, lister.is_doubted,
                bool(doubted_at) and (
                    begun is not None and begun[at["sweep"]["doubted_at"]] >= doubted_at,
                    None if begun is None else begun[at["sweep"]["begun_at"]] - doubted_at >= 900.0,
                ),
            )  # fmt: skip
        places = []
        for place, row in sorted(chunks.items()):
            owner = row[chunk["owner"]]
            places.append(
                (
                    place,
                    row[chunk["state"]],
                    owner and _name(alive, owner),
                    row[chunk["lease_until"]] > now,
                    row[chunk["due_at"]] > now,
                    row[chunk["due_at"]] < 0,
                    row[chunk["holder"]] in world.dead,
                )
            )
        scan = at["sweep"]
        clean = [
            row for row in world.table("sweep")
            if row[scan["counted"]] == 2 and row[scan["doubted_at"]] >= doubted_at and row[scan["run"]] is not None
        ]  # fmt: skip
        resolution = at["resolution"]
        is_lifted = any(
            row[resolution["kind"]] == "quarantine lifted" and row[resolution["at"]] >= doubted_at
            for row in world.table("resolution")
        )
        doubt = (
            bool(doubted_at),
            age(doubted_at) if doubted_at else -1,
            min(len(clean), 2),
            [now - row[scan["ended_at"]] < 60.0 for row in clean[-1:]],
            is_lifted and bool(doubted_at),
        )
        rest = repr(
            (
                places, listing, doubt, world.spent,
                None if world.backup is None else self._backup(world),
                sorted(worker.at for worker in world.workers if worker.at == "dead"),
            )
        )  # fmt: skip
        return orders, workers, rest, ()

    def _backup(self, world: World) -> Any:
        """The copy, as it would be put back."""
        at = self._at
        assert world.backup is not None
        past = World(world.backup, world.now, ())
        rows = self._explored.rows(past)
        chunk, attempt = at["chunk"], at["attempt"]
        return (
            [
                (
                    number,
                    row["state"],
                    row["attempt"],
                    row["sent_before"],
                    row["transaction_id"],
                    row["conflict"] is None,
                )
                for number, row in sorted(rows.items())
            ],
            [(row[chunk["number"]], row[chunk["state"]], row[chunk["owner"]] is None) for row in past.table("chunk")],
            [(row[attempt["order_id"]], row[attempt["outcome"]]) for row in past.table("attempt")],
            sorted({(row[at["evidence"]["order_id"]], row[at["evidence"]["news"]]) for row in past.table("evidence")}),
        )


def _source(source: str) -> str:
    """Where evidence is from, without names."""
    return source.split(" ", 1)[0]


def _name(alive: dict[str, Any], owner: str) -> str:
    """Whose something is: not who, for that is known by the worker itself."""
    return "alive" if owner in alive else "gone"


def _place(alive: dict[str, Any], owner: str) -> str:
    return "alive" if owner in alive else "gone"
