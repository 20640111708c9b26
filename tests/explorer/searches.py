"""Breadth first through all states of a world, to the last; then backwards from those where everything is settled."""

from __future__ import annotations

import time
from array import array
from collections import Counter

import attrs
from explorer.judges import Judges
from explorer.keys import Keys
from explorer.worlds import Explored, Plan, World


@attrs.define
class Report:
    """What came of a search.

    Attributes:
        states, steps: How many there are.
        wrong: What is wrong, in words; empty where nothing is.
        history: The steps that lead there, none fewer.
        is_whole: All of it was seen.
        seconds: It took.
    """

    plan: Plan
    states: int = 0
    steps: int = 0
    wrong: str = ""
    history: tuple[str, ...] = ()
    is_whole: bool = False
    seconds: float = 0.0
    seen: Counter[str] = attrs.field(factory=Counter)

    def __str__(self) -> str:
        whole = "all of it" if self.is_whole else "not all of it"
        said = f"{self.plan.name}: {self.states} states, {self.steps} steps, {whole}, {self.seconds:.1f} s"
        if not self.wrong:
            return said
        lines = [f"  {number}. {words}" for number, words in enumerate(self.history, 1)]
        return "\n".join([f"{said}: WRONG: {self.wrong}", *lines])


def search(plan: Plan, *, most: int | None = None, seconds: float | None = None) -> Report:
    """See all states of a world, unless one of them is wrong or there are too many."""
    began = time.perf_counter()
    explored = Explored(plan)
    judges, keys, report = Judges(explored), Keys(explored), Report(plan)
    first = explored.first()
    known = {keys.key(first): 0}
    line: list[World | None] = [first]  # a state is let go once its steps are known
    parents = array("q", [-1])
    words_of = [""]
    settled = array("b", [judges.is_settled(first)])
    backwards: list[list[int]] = [[]]  # by which states one is reached where nothing goes wrong

    def history(place: int, *last: str) -> tuple[str, ...]:
        steps = list(last)
        while place > 0:
            steps.insert(0, words_of[place])
            place = parents[place]
        return tuple(steps)

    def ended() -> Report:
        report.states, report.seconds = len(line), time.perf_counter() - began
        explored.journal.connection.close()
        return report

    place = 0
    while place < len(line):
        world = line[place]
        assert world is not None
        line[place] = None
        for step in explored.steps(world):
            after = explored.take(world, step)
            if after is None:
                continue
            report.steps += 1
            for wrong in judges.of_step(world, after, step.words):
                report.wrong, report.history = wrong, history(place, step.words)
                return ended()
            key = keys.key(after)
            number = known.get(key)
            if number is None:
                for wrong in judges.of_state(after):
                    report.wrong, report.history = wrong, history(place, step.words)
                    return ended()
                number = known[key] = len(line)
                line.append(after)
                parents.append(place)
                words_of.append(step.words)
                settled.append(judges.is_settled(after))
                backwards.append([])
            if not step.is_fault:
                backwards[number].append(place)
        place += 1
        if (most is not None and len(line) > most) or (seconds is not None and time.perf_counter() - began > seconds):
            return ended()
    report.is_whole = True
    reached = bytearray(settled)
    todo = [number for number, is_settled in enumerate(settled) if is_settled]
    while todo:
        for before in backwards[todo.pop()]:
            if not reached[before]:
                reached[before] = 1
                todo.append(before)
    lost = reached.find(0)
    if lost >= 0:
        report.wrong, report.history = "from here on some order never ends, whatever goes well", history(lost)
    return ended()
