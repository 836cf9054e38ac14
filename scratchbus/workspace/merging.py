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
_MOST_PAIRS: Final = 400
_MOST_COMPARED: Final = 200
_MANY_LINES: Final = 2_000

Named = tuple[str, Entry]
"""An item with its id on the bus."""


class MergedItems(NamedTuple):
    """The merged state: the items of the file in its order, and those of the bus in its own."""

    slots: list[Slot]
    todos: list[Named]


class _Kept(NamedTuple):
    id: str
    slot: Slot


def merge_items(base: Mapping[str, Entry], file: Sequence[Entry], bus: Sequence[Named]) -> MergedItems:
    """Merge a file and a todo list, given their last common items by id, in the order of the file."""
    known = dict(bus)
    ids = _matched(base, file, known)
    fresh = _free_ids([*base, *known])
    kept: list[_Kept] = []
    in_file: set[str] = set()
    for index, (found, entry) in enumerate(zip(ids, file, strict=True)):
        id = found or next(fresh)
        in_file.add(id)
        merged, beside = _merge_one(base.get(id), entry, known.get(id))
        if merged is not None:
            kept.append(_Kept(id, Slot(merged, index)))
        if beside is not None:
            kept.append(_Kept(next(fresh), Slot(beside)))
    for place, (id, entry) in enumerate(bus):
        if id not in in_file and base.get(id) != entry:  # new, or removed from the file but changed on the bus
            kept.insert(_place(kept, bus, place), _Kept(id, Slot(entry)))
    return MergedItems([each.slot for each in kept], _in_the_order_of_the_bus(base, kept, bus))


def _place(kept: Sequence[_Kept], bus: Sequence[Named], place: int) -> int:
    """Return the place for an item of the bus: after its predecessor there, or else before its successor."""
    where = {each.id: n for n, each in enumerate(kept)}
    behind = (where[id] + 1 for id, _ in reversed(bus[:place]) if id in where)
    ahead = (where[id] for id, _ in bus[place + 1 :] if id in where)
    return next(behind, next(ahead, len(kept)))


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


def _in_the_order_of_the_bus(base: Mapping[str, Entry], kept: Sequence[_Kept], bus: Sequence[Named]) -> list[Named]:
    """Return the items in the order of the file, or in the agent's order if an agent reordered them."""
    wanted = [(each.id, each.slot.entry) for each in kept]
    common = {id for id, _ in bus} & base.keys()
    if [id for id, _ in bus if id in common] == [id for id in base if id in common] and base:
        return wanted
    entries = dict(wanted)
    order = [id for id, _ in bus if id in entries]
    before = ""
    for id, _ in wanted:
        if id not in order:
            order.insert(order.index(before) + 1 if before else len(order), id)
        before = id
    return [(id, entries[id]) for id in order]


def _matched(base: Mapping[str, Entry], file: Sequence[Entry], bus: Mapping[str, Entry]) -> list[str | None]:
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
    rest = [index for index, id in enumerate(ids) if id is None]
    gone = [id for id in base if id not in taken]
    if len(rest) * len(gone) <= _MOST_PAIRS:
        alike = sorted(((_likeness(base[id].text, file[at].text), id, at) for id in gone for at in rest), reverse=True)
        for ratio, id, at in alike:
            if ratio >= _ALIKE and id not in taken and ids[at] is None:
                ids[at] = id
                taken.add(id)
    return ids


def _likeness(one: str, other: str) -> float:
    matcher = SequenceMatcher(None, one[:_MOST_COMPARED], other[:_MOST_COMPARED], autojunk=False)
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
    old, one, two = lines_of(base), lines_of(file), lines_of(bus)
    merged: list[str] = []
    at = at_one = at_two = 0
    for start, start_one, start_two, size in _common(old, one, two):
        merged += _merge_lines(old[at:start], one[at_one:start_one], two[at_two:start_two])
        merged += old[start : start + size]
        at, at_one, at_two = start + size, start_one + size, start_two + size
    return "".join(_ended(merged))


def _merge_lines(old: list[str], one: list[str], two: list[str]) -> list[str]:
    if one == two or two == old:
        return one
    if one == old:
        return two
    return [*one, *(line for line in two if line not in one)]


def _common(old: list[str], one: list[str], two: list[str]) -> list[tuple[int, int, int, int]]:
    """Return the runs of lines common to all three: their starts, and their length; an empty one last."""
    pairs = [dict(_pairs(old, other)) for other in (one, two)]
    runs: list[tuple[int, int, int, int]] = []
    for line in range(len(old)):
        if line in pairs[0] and line in pairs[1]:
            run = line, pairs[0][line], pairs[1][line]
            if runs and all(at + runs[-1][3] == now for at, now in zip(runs[-1][:3], run, strict=True)):
                runs[-1] = (*runs[-1][:3], runs[-1][3] + 1)
            else:
                runs.append((*run, 1))
    return [*runs, (len(old), len(one), len(two), 0)]


def _pairs(old: list[str], other: list[str]) -> Iterable[tuple[int, int]]:
    """Yield the numbers of the lines common to both, in order."""
    shorter = min(len(old), len(other))
    head = next((n for n in range(shorter) if old[n] != other[n]), shorter)
    tail = next((n for n in range(shorter - head) if old[-1 - n] != other[-1 - n]), shorter - head)
    middle, its = old[head : len(old) - tail], other[head : len(other) - tail]
    is_long = max(len(middle), len(its)) > _MANY_LINES  # then common lines, such as blank ones, are no anchors
    yield from ((n, n) for n in range(head))
    for block in SequenceMatcher(None, middle, its, autojunk=is_long).get_matching_blocks():
        yield from ((head + block.a + n, head + block.b + n) for n in range(block.size))
    yield from ((len(old) - n, len(other) - n) for n in range(tail, 0, -1))


def _ended(lines: list[str]) -> list[str]:
    """Return the lines with their line ends; the last line may lack one."""
    return [line if line.endswith(("\r", "\n")) or n == len(lines) else f"{line}\n" for n, line in enumerate(lines, 1)]
