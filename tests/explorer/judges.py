"""What must hold in every state, and of every step: by what the world knows, and by a table of this module's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from explorer.worlds import Explored, World, doubted_id

# Where an order may go from a state in one step, or in two that are one commit. Written out once more, not taken from
# the package: a row that is wrong there is noticed here.
FORWARD = {
    "planned": {"sending", "unknown", "parked", "cancelled", "accepted", "successful", "failed", "reversed"},
    "sending": {"planned", "parked", "unknown", "accepted", "rejected", "successful", "failed", "reversed"},
    "unknown": {"planned", "parked", "accepted", "rejected", "successful", "failed", "reversed"},
    "parked": {"planned", "accepted", "rejected", "successful", "failed", "reversed"},
    "accepted": {"successful", "failed", "reversed"},
    "successful": {"reversed"},
    "failed": set(),
    "reversed": set(),
    "rejected": set(),
    "cancelled": set(),
}
FINAL = {"successful", "failed", "reversed", "rejected", "cancelled"}


class Judges:
    """Looks at states and steps; tells what is wrong, in words."""

    def __init__(self, explored: Explored) -> None:
        self._explored = explored
        self._at = explored.columns
        self._is_punctual = explored.plan.late <= 1  # else two lists in a row may miss what was carried out

    def of_state(self, world: World) -> Iterator[str]:
        """What no state may be."""
        rows = self._explored.rows(world)
        forged = {number: {kind for kind, of in world.forged if of == number} for number in rows}
        # Nothing else may be believed: not of an order that was confirmed before, nor the transaction of another order.
        forged = {number: kinds & {"failed", "successful"} for number, kinds in forged.items()}
        named: dict[int, set[str]] = {}
        evidence = self._at["evidence"]
        for row in world.table("evidence"):
            named.setdefault(row[evidence["order_id"]], set()).add(row[evidence["transaction_id"]] or "")
        for number in self._explored.numbers:
            paid = [one for one in world.ledger if one.order == number]
            # a person who says that an order never arrived, and is wrong, pays it once more
            if len(paid) > 1 + world.words[number]:
                said = f"persons said {world.words[number]} times that it never arrived"
                yield f"order {number} was carried out {len(paid)} times, {said}"
            row = rows.get(number)
            if row is None:
                continue
            state = row["state"]
            if doubted_id(number) in named.get(row["id"], ()):
                yield f"order {number} was told of by a sender that nobody has confirmed, and that counts"
            if state == "sending" and not self._is_leased(world, row):
                yield f"order {number} is being sent under a lease that was taken over or given back"
            flights = [one for one in world.flights if one.order == number]
            if state == "rejected" and (paid or flights) and not world.words[number]:
                yield f"order {number} is rejected and was carried out, or may be yet"
            if state == "cancelled" and (paid or flights):
                yield f"order {number} is cancelled and was carried out, or may be yet"
            if state == "rejected" and any(
                (one.attempt, one.token) == (row["attempt"], row["token"]) for one in flights
            ):
                yield f"order {number} is rejected, and the request of its last permit is on its way"
            if state == "failed" and "failed" not in forged[number] and any(not one.fails for one in paid):
                yield f"order {number} is failed and was paid"
            if state == "failed" and "failed" not in forged[number] and not paid:
                yield f"order {number} is failed, and the service never had it"
            if state in ("successful", "accepted") and not forged[number] and not paid:
                yield f"order {number} is {state}, and the service never had it"
            if state == "successful" and not forged[number] and all(one.fails for one in paid):
                yield f"order {number} is successful and was not paid"
            for of, transaction in world.told:
                known = bytes(row["transaction_id"] or b"").hex() == transaction.replace("-", "")
                if of == number and not known and transaction not in named.get(row["id"], ()):
                    yield f"order {number} is {state}, and nothing is left of transaction {transaction}, which was told"

    def of_step(self, before: World, after: World, words: str) -> Iterator[str]:
        """What no step may do."""
        if words == "the copy is put back":
            return
        was, is_now = self._explored.rows(before), self._explored.rows(after)
        for number, row in was.items():
            if number not in is_now:
                yield f"order {number} is gone"
                continue
            old, new = row["state"], is_now[number]["state"]
            is_contradicted = (old, new) == ("accepted", "parked") and is_now[number]["conflict"] is not None
            if old != new and new not in FORWARD[old] and not is_contradicted:
                yield f"order {number} went from {old} to {new}"
            if new == "parked" == self._parked_by_lists(after, row["id"]) != old and self._is_punctual:
                if any(one.order == number for one in after.flights):
                    yield f"order {number} is parked as no list shows it, and its request is on its way"
                if any(one.order == number for one in after.ledger):
                    yield f"order {number} is parked as no list shows it, and was carried out"
            if (
                old == "sending"
                and new == "unknown"
                and self._is_held(before, row)
                and self._is_expired(after, row["id"])
            ):
                yield f"order {number} is unknown as if its lease were over, which is good"
            if new == "sending" and is_now[number]["attempt"] != row["attempt"]:
                yield from self._of_permit(before, after, is_now[number])
            if new == "planned" != old and not words.startswith("a person says"):
                last = number, is_now[number]["attempt"], is_now[number]["token"]
                if any((one.order, one.attempt, one.token) == last for one in after.flights):
                    yield f"order {number} is planned again, and its request is on its way"
                if any(one.order == number for one in after.ledger) and not after.words[number]:
                    yield f"order {number} is planned again, and was carried out"
        if "prolongs its lease" in words:
            yield from self._of_renewal(before, after, words)
        for number, row in is_now.items():
            if number not in was and row["state"] == "sending":
                yield from self._of_permit(before, after, row)
        for table, columns in _KEPT.items():
            at = self._at[table]
            places = [at[column] for column in columns]
            left = {tuple(row[place] for place in places) for row in after.table(table)}
            for row in before.table(table):
                if tuple(row[place] for place in places) not in left:
                    yield f"a row of {table} is gone: {row}"

    def _of_permit(self, before: World, after: World, row: dict[str, Any]) -> Iterator[str]:
        """An order was permitted to the holder of its chunk, whose lease is good."""
        at = self._at["chunk"]
        granted = [
            new for old, new in zip(before.workers, after.workers, strict=True)
            if new.permit is not None and new.permit != old.permit and new.permit.id == row["id"]
        ]  # fmt: skip
        for worker in granted:
            permit = worker.permit
            assert permit is not None
            said = permit.attempt, permit.token, permit.at, permit.sent_before
            stands = row["attempt"], row["token"], row["permitted_at"], bool(row["sent_before"])
            if said != stands:
                yield f"order {row['request_id']} was permitted as {said}, and stands as {stands}"
        holders = {worker.owner for worker in granted}
        chunk = self._chunk_of(after, row)
        if chunk[at["owner"]] not in holders or chunk[at["token"]] != row["token"]:
            yield f"order {row['request_id']} was permitted to a worker that does not hold its chunk"
        elif chunk[at["lease_until"]] <= before.now or chunk[at["state"]] != "open":
            yield f"order {row['request_id']} was permitted under a lease that is over"

    def _of_renewal(self, before: World, after: World, words: str) -> Iterator[str]:
        """A lease was prolonged by who holds it."""
        at = self._at["chunk"]
        (worker,) = [one for one in before.workers if words.startswith(f"worker {one.who} ")]
        assert worker.chunk is not None
        for was, row in zip(before.table("chunk"), after.table("chunk"), strict=True):
            is_own = (row[at["number"]], row[at["token"]]) == (worker.chunk.number, worker.chunk.token)
            if row[at["lease_until"]] != was[at["lease_until"]] and not is_own:
                yield f"chunk {row[at['number']]} was prolonged by a worker that holds it no more"

    def _chunk_of(self, world: World, row: dict[str, Any]) -> tuple[Any, ...]:
        """The chunk of an order."""
        number = self._at["chunk"]["number"]
        of = (row["id"] & ((1 << 28) - 1)) // 500
        return next(one for one in world.table("chunk") if one[number] == of)

    def _is_leased(self, world: World, row: dict[str, Any]) -> bool:
        """Whether the lease under which an order was permitted is the last one of its chunk."""
        at, chunk = self._at["chunk"], self._chunk_of(world, row)
        return chunk[at["owner"]] is not None and chunk[at["token"]] == row["token"]

    def _is_held(self, world: World, row: dict[str, Any]) -> bool:
        """Whether the lease of an order is good, and its holder alive."""
        at, chunk = self._at["chunk"], self._chunk_of(world, row)
        is_good = chunk[at["lease_until"]] > world.now and chunk[at["state"]] == "open"
        return is_good and self._is_leased(world, row) and chunk[at["holder"]] not in world.dead

    def _is_expired(self, world: World, of: int) -> bool:
        """Whether an order stands where a takeover has brought it."""
        at = self._at["evidence"]
        trail = [row for row in world.table("evidence") if row[at["order_id"]] == of]
        return bool(trail) and trail[-1][at["news"]] == "lease_expired"

    def _parked_by_lists(self, world: World, of: int) -> str:
        """Where the last list that missed an order has brought it; nothing where none did."""
        at = self._at["evidence"]
        trail = [row for row in world.table("evidence") if row[at["order_id"]] == of]
        return trail[-1][at["after"]] if trail and trail[-1][at["news"]] == "swept_clean_twice" else ""

    def is_settled(self, world: World) -> bool:
        """Whether every order has ended, or waits for a person with a reason that is true."""
        rows = self._explored.rows(world)
        chunk = self._at["chunk"]
        held = {row[chunk["number"]] for row in world.table("chunk") if row[chunk["state"]] == "quarantined"}
        plan, settled = self._explored.plan, FINAL | {"parked"}
        settled |= set() if plan.lists else {"unknown"}  # no list is read for it
        settled |= set() if plan.lists or plan.notifies else {"accepted"}
        for number in self._explored.numbers:
            row = rows.get(number)
            if row is None:
                return False
            state, of = row["state"], (row["id"] & ((1 << 28) - 1)) // 500
            is_shown = row["conflict"] is not None  # a contradiction, which a person has to look at
            is_paid = any(one.order == number and not one.fails for one in world.ledger)
            if state == "failed" and is_paid and plan.lists and not is_shown:
                return False  # a notification alone says so, and a list shows the contrary
            if state not in settled and not is_shown and not (state == "planned" and of in held):
                return False
        return True


# What is on record stays on record.
_KEPT = {
    "evidence": ("id", "order_id", "news", "source", "transaction_id", "before", "after"),
    "attempt": ("id", "order_id", "n", "outcome"),
    "ipn_event": ("id", "transaction_id", "status_code", "request_key"),
    "claim": ("number", "token", "owner"),
    "resolution": ("id", "kind", "who"),
}
