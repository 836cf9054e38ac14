"""Rebuilding: how fast others publish while the state is rebuilt."""

from __future__ import annotations

from multiprocessing.connection import Connection

from scratchbus import Bus
from scratchbus.errors import ScratchbusError
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.processes import running
from tests.benchmarks.rows import Floor, Row, rates
from tests.benchmarks.stage import BATCH, Sizes, Stage, add_each, fill, given


def measure_rebuild(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare `page.add` while another process rebuilds the state with `page.add` alone."""
    bus = stage.bus("rebuilt")
    page = bus.page()
    items = [given(number) for number in range(sizes.adds)]
    fill(page, max(BATCH, sizes.backlog))
    with running(_rebuild, stage.url, "rebuilt") as other:
        folded_counts: list[int] = []
        is_rebuilding = False

        def start() -> None:
            nonlocal is_rebuilding
            other.send("go")
            other.receive()
            is_rebuilding = True

        def rest() -> None:
            nonlocal is_rebuilding
            if is_rebuilding:
                other.send("stop")
                folded_counts.append(other.receive())
                is_rebuilding = False

        def restart() -> None:
            rest()
            start()

        taken = interleave(
            sizes.rounds,
            Side("page.add while the state is rebuilt", len(items), lambda: add_each(page, items), restart),
            Side("page.add", len(items), lambda: add_each(page, items), rest),
        )
        rest()
    ours, alone = taken
    folded = sum(folded_counts) / (len(folded_counts) * len(items))
    return [
        rates(
            taken, ours, alone, floor=Floor("ratio", "at least", 0.7),
            note=f"{folded:.1f} events are folded for each one added",
        )
    ]  # fmt: skip


class _Stopped(ScratchbusError):
    """Raised to stop a rebuild."""


def _rebuild(pipe: Connection, url: str, name: str) -> None:
    """Rebuild repeatedly from each "go" to each "stop"; send "begun", and at the end the number of folded events."""
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
                    raise _Stopped

            try:
                while True:
                    bus.rebuild(note)
            except _Stopped:
                pipe.recv()
                pipe.send(folded)
