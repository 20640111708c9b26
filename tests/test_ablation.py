"""The table of what each guard is for: it can be made, and a guard that is taken out is missed."""

from pathlib import Path

import pytest
from benchmarks.ablation import GUARDS, Cell, Told, play, without
from mutation.test_mutants import changes_one_place

FEW = {
    Cell("put back, half", "batch", "gone", 0): Told(0, 0, 0, "Q"),
    Cell("mistyped", "batch", "kept", 3): Told(0, 0, 0, "HQ"),
    Cell("mistyped", "outbox", "kept", 0): Told(0, 0, 0, "SH"),
    Cell("of two, same batch", "outbox", "kept", 0): Told(0, 0, 0, "H"),
    Cell("lost and found", "batch", "kept", 3): Told(0, 0, 0, "LHQ"),
}


def test_each_guard_can_be_taken_out() -> None:
    """Its text stands once where the table says."""
    assert [] == [guard for guard, changes in GUARDS.items() if not all(map(changes_one_place, changes))]


@pytest.mark.slow
@pytest.mark.parametrize("cell", FEW, ids=lambda cell: f"{cell.scene} {cell.way}")
async def test_a_cell(tmp_path: Path, cell: Cell) -> None:
    """Nothing is paid twice with all guards, and the refusals are those that the table shows."""
    assert FEW[cell] == await play(cell, tmp_path)


@pytest.mark.slow(covered=False)
@pytest.mark.parametrize(
    ("guard", "scene", "late", "told"),
    [
        ("request-ids", "of two, other batch", 0, Told(12, 0, 0, "")),
        ("request-ids, let out", "mistyped", 8, Told(12, 0, 0, "S")),
        ("request-ids, word waits", "mistyped, other ids", 0, Told(0, 0, 0, "S", 12)),
    ],
)
async def test_what_the_registry_of_request_ids_is_for(guard: str, scene: str, late: int, told: Told) -> None:
    """One rule for absence does not stand in its place: a second journal pays twice, or nothing at all."""
    table = await without(guard, ["--scene", scene, "--late", str(late), "--way", "outbox"])
    assert told == table[Cell(scene, "outbox", "kept", late)]


@pytest.mark.slow(covered=False)
async def test_a_guard_is_missed() -> None:
    """Without the registry of request ids a second journal pays twice what is listed late, once a person said yes."""
    table = await without("request-ids", ["--scene", "mistyped", "--late", "8", "--way", "batch"])
    assert {"kept": Told(12, 0, 0, "S"), "gone": Told(12, 0, 0, "")} == {
        cell.memory: told for cell, told in table.items()
    }
