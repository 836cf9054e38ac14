"""Rebuilding: how fast others publish while the state is folded anew."""

from __future__ import annotations

from multiprocessing.connection import Connection

from scratchbus import Bus
from scratchbus.errors import ScratchbusError
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.processes import running
from tests.benchmarks.rows import Floor, Row, rates
from tests.benchmarks.stage import BATCH, Sizes, Stage, fill, given


def measure_rebuild(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare `page.add` while another process rebuilds the state with `page.add` alone."""
    bus = stage.bus("rebuilt")
    page = bus.page()
    items = [given(number) for number in range(sizes.adds)]
    fill(page, max(BATCH, sizes.backlog))
    with running(_rebuild, stage.url, "rebuilt") as other:
        told: list[int] = []
        is_going = False

        def add() -> None:
            for item in items:
                page.add(**item)

        def go() -> None:
            nonlocal is_going
            other.tell("go")
            other.hear()
            is_going = True

        def rest() -> None:
            nonlocal is_going
            if is_going:
                other.tell("stop")
                told.append(other.hear())
                is_going = False

        def go_anew() -> None:
            rest()
            go()

        taken = interleave(
            sizes.rounds,
            Side("page.add while the state is rebuilt", len(items), add, go_anew),
            Side("page.add", len(items), add, rest),
        )
        rest()
    ours, alone = taken
    folded = sum(told) / (len(told) * len(items))
    return [
        rates(
            taken, ours, alone, floor=Floor("ratio", "at least", 0.7),
            note=f"meanwhile {folded:.1f} events are folded for each that is added",
        )
    ]  # fmt: skip


class _Enough(ScratchbusError):
    """It is told to stop."""


def _rebuild(pipe: Connection, url: str, name: str) -> None:
    """Rebuild again and again from each "go" to each "stop"; tell when it has begun, and how many events it folded."""
    with Bus.connect(url, bus=name, source="rebuild") as bus:
        while pipe.recv() == "go":
            folded = before = 0
            has_begun = False

            def note(done: int, total: int) -> None:
                nonlocal folded, before, has_begun
                folded, before = folded + max(0, done - before), done
                if done and not has_begun:
                    has_begun = True
                    pipe.send("begun")
                if pipe.poll():
                    raise _Enough

            try:
                while True:
                    bus.rebuild(note)
            except _Enough:
                pipe.recv()
                pipe.send(folded)
