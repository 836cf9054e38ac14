"""Three-way merges of a checklist and of a text, from the last common state.

Pure. Changes by one side are taken; conflicting changes are kept side by side.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from scratchbus.workspace.checklist import Entry, Slot, lines_of

_FINAL: Final = ("completed", "cancelled")
_ALIKE: Final = 0.5
_MAX_PAIRS: Final = 400
_MAX_COMPARED: Final = 200
_MANY_LINES: Final = 2_000

Named = tuple[str, Entry]
"""An item with its id on the bus."""


class MergedItems(NamedTuple):
    """The merged state: the items of the file in its order, and those of the bus in its own."""

    slots: list[Slot]
    todos: list[Named]


class _MergedItem(NamedTuple):
    id: str
    slot: Slot


def merge_items(base: Mapping[str, Entry], file: Sequence[Entry], bus: Sequence[Named]) -> MergedItems:
    """Merge a file and a todo list, given their last common items by id, in the order of the file."""
    bus_entries = dict(bus)
    ids = _match_ids(base, file, bus_entries)
    free_ids = _free_ids([*base, *bus_entries])
    merged_items: list[_MergedItem] = []
    in_file: set[str] = set()
    for file_index, (found, entry) in enumerate(zip(ids, file, strict=True)):
        id = found or next(free_ids)
        in_file.add(id)
        merged, extra = _merge_one(base.get(id), entry, bus_entries.get(id))
        if merged is not None:
            merged_items.append(_MergedItem(id, Slot(merged, file_index)))
        if extra is not None:
            merged_items.append(_MergedItem(next(free_ids), Slot(extra)))
    for index, (id, entry) in enumerate(bus):
        if id not in in_file and base.get(id) != entry:  # new, or removed from the file but changed on the bus
            merged_items.insert(_index_for(merged_items, bus, index), _MergedItem(id, Slot(entry)))
    return MergedItems([each.slot for each in merged_items], _in_bus_order(base, merged_items, bus))


def _index_for(merged: Sequence[_MergedItem], bus: Sequence[Named], bus_index: int) -> int:
    """Return the index for an item of the bus: after its predecessor there, or else before its successor."""
    index_of = {each.id: n for n, each in enumerate(merged)}
    after_predecessor = (index_of[id] + 1 for id, _ in reversed(bus[:bus_index]) if id in index_of)
    before_successor = (index_of[id] for id, _ in bus[bus_index + 1 :] if id in index_of)
    return next(after_predecessor, next(before_successor, len(merged)))


def _merge_one(base: Entry | None, file: Entry, bus: Entry | None) -> tuple[Entry | None, Entry | None]:
    """Return the merged item of the file, None to remove it, and the item added beside it."""
    if bus is None:
        return (None if file == base else file), None
    status = _merged_status(base and base.status, file.status, bus.status)
    if file.text == bus.text or (base and bus.text == base.text):
        return Entry(file.text, status), None
    if base and file.text == base.text:
        return Entry(bus.text, status), None
    return bus, file


def _merged_status(base: str | None, file: str, bus: str) -> str:
    """Return the changed status; if both changed, one that ends the item, or else the file's."""
    if base in (file, bus):
        return bus if file == base else file
    return bus if bus in _FINAL and file not in _FINAL else file


def _in_bus_order(base: Mapping[str, Entry], merged: Sequence[_MergedItem], bus: Sequence[Named]) -> list[Named]:
    """Return the items in the order of the file, or in the agent's order if an agent reordered them."""
    items = [(each.id, each.slot.entry) for each in merged]
    common = {id for id, _ in bus} & base.keys()
    if [id for id, _ in bus if id in common] == [id for id in base if id in common] and base:
        return items
    entries = dict(items)
    order = [id for id, _ in bus if id in entries]
    before = ""
    for id, _ in items:
        if id not in order:
            order.insert(order.index(before) + 1 if before else len(order), id)
        before = id
    return [(id, entries[id]) for id in order]


def _match_ids(base: Mapping[str, Entry], file: Sequence[Entry], bus: Mapping[str, Entry]) -> list[str | None]:
    """Return the id of each item of a file: by its last text, its text on the bus, or else a similar text."""
    ids: list[str | None] = [None] * len(file)
    taken: set[str] = set()
    for side in (base, bus):
        by_text: defaultdict[str, deque[str]] = defaultdict(deque)
        for id, entry in side.items():
            if id not in taken:
                by_text[entry.text].append(id)
        for index, entry in enumerate(file):
            if ids[index] is None and by_text[entry.text]:
                ids[index] = by_text[entry.text].popleft()
                taken.add(ids[index] or "")
    new_items = [index for index, id in enumerate(ids) if id is None]
    unmatched = [id for id in base if id not in taken]
    if len(new_items) * len(unmatched) <= _MAX_PAIRS:
        alike = sorted(
            ((_similarity(base[id].text, file[at].text), id, at) for id in unmatched for at in new_items), reverse=True
        )
        for ratio, id, at in alike:
            if ratio >= _ALIKE and id not in taken and ids[at] is None:
                ids[at] = id
                taken.add(id)
    return ids


def _similarity(one: str, other: str) -> float:
    matcher = SequenceMatcher(None, one[:_MAX_COMPARED], other[:_MAX_COMPARED], autojunk=False)
    return matcher.ratio() if matcher.quick_ratio() >= _ALIKE else 0.0


def _free_ids(taken: Iterable[str]) -> Iterator[str]:
    number = max((int(id) for id in taken if id.isascii() and id.isdecimal() and len(id) < 10), default=0)
    while True:
        number += 1
        yield str(number)


def merge_text(base: str, file: str, bus: str) -> str:
    """Merge two versions of a text line by line, given their last common version.

    If both changed the same lines, the file's lines come first, then the lines of the bus that it lacks.
    """
    if file == bus or bus == base:
        return file
    if file == base:
        return bus
    base_lines, file_lines, bus_lines = lines_of(base), lines_of(file), lines_of(bus)
    merged: list[str] = []
    at = at_one = at_two = 0
    for start, start_one, start_two, size in _common_runs(base_lines, file_lines, bus_lines):
        merged += _merge_lines(base_lines[at:start], file_lines[at_one:start_one], bus_lines[at_two:start_two])
        merged += base_lines[start : start + size]
        at, at_one, at_two = start + size, start_one + size, start_two + size
    return "".join(_ended(merged))


def _merge_lines(base: list[str], file: list[str], bus: list[str]) -> list[str]:
    if file == bus or bus == base:
        return file
    if file == base:
        return bus
    in_file = set(file)
    return [*file, *(line for line in bus if line not in in_file)]


def _common_runs(base: list[str], file: list[str], bus: list[str]) -> list[tuple[int, int, int, int]]:
    """Return the runs of lines common to all three: their starts, and their length; an empty one last."""
    pairs = [dict(_common_lines(base, other)) for other in (file, bus)]
    runs: list[tuple[int, int, int, int]] = []
    for line in range(len(base)):
        if line in pairs[0] and line in pairs[1]:
            run = line, pairs[0][line], pairs[1][line]
            if runs and all(at + runs[-1][3] == start for at, start in zip(runs[-1][:3], run, strict=True)):
                runs[-1] = (*runs[-1][:3], runs[-1][3] + 1)
            else:
                runs.append((*run, 1))
    return [*runs, (len(base), len(file), len(bus), 0)]


def _common_lines(base: list[str], other: list[str]) -> Iterable[tuple[int, int]]:
    """Yield the numbers of the lines common to both, in order."""
    shorter = min(len(base), len(other))
    head = next((n for n in range(shorter) if base[n] != other[n]), shorter)
    tail = next((n for n in range(shorter - head) if base[-1 - n] != other[-1 - n]), shorter - head)
    middle, other_middle = base[head : len(base) - tail], other[head : len(other) - tail]
    is_long = max(len(middle), len(other_middle)) > _MANY_LINES  # then common lines, such as blank ones, are no anchors
    yield from ((n, n) for n in range(head))
    for block in SequenceMatcher(None, middle, other_middle, autojunk=is_long).get_matching_blocks():
        yield from ((head + block.a + n, head + block.b + n) for n in range(block.size))
    yield from ((len(base) - n, len(other) - n) for n in range(tail, 0, -1))


def _ended(lines: list[str]) -> list[str]:
    """Return the lines with their line ends; the last line may lack one."""
    return [line if line.endswith(("\r", "\n")) or n == len(lines) else f"{line}\n" for n, line in enumerate(lines, 1)]
