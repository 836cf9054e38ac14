"""Two-way sync under any interleaving of edits on both sides converges and loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scratchbus import TodoItem, TodoList
from scratchbus.errors import RevisionConflict
from scratchbus.settings import Settings
from scratchbus.workspace import shared_file
from scratchbus.workspace.checklist import MARKS, entries, on_one_line, parse
from scratchbus.workspace.sync import SyncState, WorkspaceSync


class Memory:
    """A todo list or a notepad: a value with revisions, as the bus keeps it."""

    def __init__(self, value: Any, happens: Callable[[], None]) -> None:
        self.value, self.revision, self._happens = value, 0, happens
        self.past: dict[str, Any] = {}

    def put(self, value: Any) -> None:
        self.value, self.revision = value, self.revision + 1

    def write(self, value: Any, *, revision: int) -> None:
        self._happens()
        if revision != self.revision:
            raise RevisionConflict("it", revision, self.revision)
        self.put(list(value) if isinstance(self.value, list) else value)

    def read(self) -> TodoList:
        self._happens()
        return TodoList(todos=list(self.value), revision=self.revision)

    def read_with_revision(self) -> tuple[str, int]:
        self._happens()
        return self.value, self.revision

    def as_of(self, position: str) -> TodoList | str:
        value = self.past[position]
        return value if isinstance(value, str) else TodoList(todos=value)


class FakeBus:
    """The bus as a sync uses it; `happens` is called before each call."""

    def __init__(self, home: Path, happens: Callable[[], None]) -> None:
        self.settings = Settings(home=home)
        self.list, self.pad = Memory([], happens), Memory("", happens)

    def todo(self, _: str) -> Memory:
        return self.list

    def notepad(self, _: str) -> Memory:
        return self.pad

    def session(self, _: str) -> None:
        return None

    def position(self) -> str:
        position = f"{self.list.revision}/{self.pad.revision}"
        for each in (self.list, self.pad):
            each.past[position] = each.value
        return position


class World:
    """A directory and a bus, each with someone who edits; `wanted` are the texts that must be on both sides."""

    def __init__(self, directory: Path) -> None:
        self.pending: list[tuple[str, int]] = []
        self.wanted: set[str] = set()
        self.lines: set[str] = set()
        self.count = 0
        self.bus = FakeBus(directory / "home", self.run_pending)
        self.file = directory / "project" / "TODO.md"
        self.notes = directory / "project" / "NOTES.md"
        self.file.parent.mkdir()
        self.sync = WorkspaceSync(cast(Any, self.bus), self.file.parent, "s")

    def run_pending(self) -> None:
        if self.pending:
            edit, which = self.pending.pop(0)
            if edit != "nothing":
                getattr(self, edit)(which)

    def new(self) -> str:
        self.count += 1
        text = "".join(chr(97 + (self.count * 7919 // 26**n) % 26) * 3 for n in range(4)) + str(self.count)
        self.wanted.add(text)
        return text

    def new_line(self) -> str:
        self.count += 1
        self.lines.add(f"line {self.count}")
        return f"line {self.count}"

    # -- a person with an editor --------------------------------------------------------------------------------------

    def _text(self) -> str:
        return self.file.read_text() if self.file.exists() else ""

    def _edit(self, which: int, change: Callable[[str, Any], str | None]) -> None:
        text = self._text()
        items = parse(text)
        if items:
            item, lines = items[which % len(items)], text.splitlines(keepends=True)
            line = change(lines[item.start], item)
            lines[item.start : item.start + 1] = [] if line is None else [line]
            self.file.write_text("".join(lines))

    def file_adds(self, which: int) -> None:
        lines = self._text().splitlines(keepends=True)
        at = which % (len(lines) + 1)
        is_above_text = lines[at : at + 1] and not lines[at].lstrip().startswith(
            ("-", "\n")
        )  # the line would continue the new item
        lines.insert(at, f"- [ ] {self.new()}\n" + ("\n" if is_above_text else ""))
        self.file.write_text("".join(lines))

    def file_ticks(self, which: int) -> None:
        mark = "x>- "[which % 4]
        self._edit(which, lambda line, item: line[: item.mark_at] + mark + line[item.mark_at + 1 :])

    def file_rewords(self, which: int) -> None:
        def change(line: str, item: Any) -> str:
            self.wanted.discard(item.entry.text)
            return line[: item.text_at] + self.reworded(item.entry.text) + "\n"

        self._edit(which, change)

    def file_removes(self, which: int) -> None:
        def change(line: str, item: Any) -> None:
            self.wanted.discard(item.entry.text)

        if len(parse(self._text())) > 1:
            self._edit(which, change)

    def file_formats(self, which: int) -> None:
        self.file.write_text(f"{self._text().rstrip()}\n\n## Heading {which}\n\nSome *text*.\n")

    def reworded(self, text: str) -> str:
        self.count += 1
        changed = f"{text.partition(' ')[0]} {self.count}"
        self.wanted.add(changed)
        return changed

    def notes_gain(self, which: int) -> None:
        lines = self.notes.read_text().splitlines(keepends=True) if self.notes.exists() else []
        lines.insert(which % (len(lines) + 1), f"{self.new_line()}\n")
        self.notes.write_text("".join(lines))

    # -- an agent -----------------------------------------------------------------------------------------------------

    def bus_adds(self, which: int) -> None:
        todos = list(self.bus.list.value)
        todos.insert(which % (len(todos) + 1), TodoItem(id=f"a{self.count}", content=self.new()))
        self.bus.list.put(todos)

    def _change(self, which: int, **changes: str) -> None:
        todos = list(self.bus.list.value)
        if todos:
            todos[which % len(todos)] = todos[which % len(todos)].model_copy(update=changes)
            self.bus.list.put(todos)

    def bus_ticks(self, which: int) -> None:
        self._change(which, status=list(MARKS)[which % 4])

    def bus_rewords(self, which: int) -> None:
        todos = self.bus.list.value
        if todos:
            text = todos[which % len(todos)].content
            self.wanted.discard(text)
            self._change(which, content=self.reworded(text))

    def bus_removes(self, which: int) -> None:
        todos = list(self.bus.list.value)
        if todos:
            self.wanted.discard(todos.pop(which % len(todos)).content)
            self.bus.list.put(todos)

    def pad_gains(self, which: int) -> None:
        lines = self.bus.pad.value.splitlines(keepends=True)
        lines.insert(which % (len(lines) + 1), f"{self.new_line()}\n")
        self.bus.pad.put("".join(lines))

    # -- the sync -----------------------------------------------------------------------------------------------------

    def synced(self, which: int) -> None:
        self.sync.run()

    def check(self) -> None:
        self.pending.clear()
        self.sync.run()
        assert self.sync.run().wrote == ()
        found = entries(self._text())
        on_bus = [(on_one_line(todo.content), todo.status) for todo in self.bus.list.value]
        assert sorted(found) == sorted(on_bus)
        assert self.wanted <= {entry.text for entry in found}
        assert len({todo.id for todo in self.bus.list.value}) == len(self.bus.list.value)
        assert self.notes.read_text() == self.bus.pad.value
        assert self.lines <= set(self.bus.pad.value.splitlines())


EDITS = (
    "file_adds", "file_ticks", "file_rewords", "file_removes", "file_formats", "notes_gain", "bus_adds", "bus_ticks",
    "bus_rewords", "bus_removes", "pad_gains",
)  # fmt: skip

_edits = st.tuples(st.sampled_from(EDITS), st.integers(0, 20))
_steps = st.lists(st.one_of(_edits, st.just(("synced", 0))), max_size=12)
_meanwhile = st.lists(st.one_of(_edits, st.just(("nothing", 0))), max_size=6)


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_file, "_QUIET", 0)
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.mark.slow
@given(rounds=st.lists(st.tuples(_steps, _meanwhile), max_size=4))
@settings(max_examples=100, deadline=None)
def test_any_interleaving_of_edits_converges_and_loses_nothing(rounds: list[Any]):
    with TemporaryDirectory() as directory:
        world = World(Path(directory))
        for steps, meanwhile in rounds:
            for name, which in steps:
                getattr(world, name)(which)
            world.pending = list(meanwhile)  # made while it runs, one before each of its calls
            world.sync.run()
        world.check()


@given(rounds=st.lists(st.tuples(_steps, st.integers(1, 6)), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_a_sync_killed_at_any_point_loses_nothing(rounds: list[Any]):
    class Killed(Exception):
        pass

    with TemporaryDirectory() as directory:
        world = World(Path(directory))
        for steps, after in rounds:
            for name, which in steps:
                getattr(world, name)(which)
            with pytest.MonkeyPatch.context() as patch:
                left = [after]

                def count(*_: Any, left: list[int] = left) -> None:
                    left[0] -= 1
                    if left[0] <= 0:
                        raise Killed

                patch.setattr(world, "run_pending", count)
                patch.setattr(world.bus.list, "_happens", count)
                patch.setattr(world.bus.pad, "_happens", count)
                patch.setattr(SyncState, "write", lambda *_, count=count: count())
                with suppress(Killed):
                    world.sync.run()
        world.check()
