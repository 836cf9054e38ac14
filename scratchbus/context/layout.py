"""Lay out a context: sections within a token budget.

Some sections are texts: a text that does not fit is cut to its head and tail. The others show whole items. Both state
how much was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from scratchbus.domain.tokens import TokenCounter
from scratchbus.errors import BudgetTooSmall

_TRIES: Final = 20
"""How many oversized items in a row end a section."""

_LARGE_SHARE: Final = 0.5
"""An item that does not fit and needs more than this share of a section is skipped; a smaller one ends it."""

_SHORTEST_CUT: Final = 20
"""With room for fewer characters than this, a text is left out rather than cut."""

_FOR_TEXTS: Final = 0.75
"""The share of the budget for texts that do not fit in full, so that other sections get the rest."""

_SEPARATOR: Final = "\n\n"


@dataclass(slots=True)
class Section:
    """A part of a context: a head, then items by priority, each rendered by `show`.

    Without items it is a text, its head; `advice` says how to read the part that was cut. `share` is the share of the
    remaining room it may fill before the later sections get theirs. `unread` counts items that were not even read
    because they could not fit. `order` is the order in which the chosen items are shown, if it differs.
    """

    name: str
    head: str
    items: Sequence[Any] | None = None
    show: Callable[[Any], str] = str
    share: float = 1.0
    unread: int = 0
    advice: str = ""
    order: Callable[[Any], Any] | None = None

    @property
    def total(self) -> int:
        """The number of items, shown or not."""
        return len(self.items or ()) + self.unread


class Shown(NamedTuple):
    """A rendered item."""

    item: Any
    text: str


class Part(NamedTuple):
    """A rendered section: its text and the items in it; a section that is a text has no items."""

    name: str
    text: str
    items: Sequence[Shown] = ()


@dataclass(slots=True)
class Layout:
    """A finished context: the text, its tokens, its sections, and by section the items shown and those left out."""

    text: str
    tokens: int
    chosen: Mapping[str, list[Any]]
    left_out: Mapping[str, int]
    parts: Sequence[Part] = ()


def lay_out(sections: Sequence[Section], budget: int, count: TokenCounter, *, strict: bool = False) -> Layout:
    """Return the sections in this order, within the budget in total.

    Each section in turn gets room up to its share; then the rest is offered once more in the same order. Texts that do
    not fit are cut or, with `strict`, raise BudgetTooSmall.
    """
    separator_tokens = count(_SEPARATOR)
    texts = [_TextPart(section, count) for section in sections if section.items is None]
    needed = count(_SEPARATOR.join(text.section.head for text in texts))
    if needed > budget:
        if strict:
            raise BudgetTooSmall(budget, needed)
        _cut_all(texts, int(budget * _FOR_TEXTS), separator_tokens)
    room = budget - sum(count(text.shown) + separator_tokens for text in texts)
    fillings: list[_Filling] = []
    for section in sections:
        opening = count(section.head) + count(_left_out(section.total)) + 2 * separator_tokens
        if section.items and opening <= room:
            fillings.append(_Filling(section, count, separator_tokens))
            room -= opening
    for is_first in (True, False):
        for filling in fillings:
            room -= filling.fill(int(room * filling.section.share) if is_first else room)
    if needed > budget and room > separator_tokens:
        texts[-1].cut(count(texts[-1].shown) + room - separator_tokens)
    while True:
        parts = list(_shown(sections, texts, fillings))
        text = _SEPARATOR.join(part.text for part in parts)
        tokens = count(text)
        if tokens <= budget or not _shorten(texts, fillings):
            break
    chosen = {each.section.name: [item for item, _ in each.chosen()] for each in fillings}
    left_out = {
        section.name: missing for section in sections if (missing := section.total - len(chosen.get(section.name, ())))
    }
    left_out |= {text.section.name: 1 for text in texts if text.is_cut}
    mentioned = chosen.keys() | {text.section.name for text in texts if text.shown}
    unmentioned = ", ".join(f"{name} {missing}" for name, missing in left_out.items() if name not in mentioned)
    with_note = _SEPARATOR.join(filter(None, (text, f"(left out for lack of room: {unmentioned})")))
    if unmentioned and count(with_note) <= budget:
        text, tokens = with_note, count(with_note)
    return Layout(text, tokens, chosen, left_out, parts)


def _cut_all(texts: Sequence[_TextPart], room: int, separator_tokens: int) -> None:
    """Cut texts to fit, in order: the first ones get the room they need."""
    for text in texts:
        text.cut(room)
        room = max(0, room - text.count(text.shown) - separator_tokens)


def _shorten(texts: Sequence[_TextPart], fillings: list[_Filling]) -> bool:
    """Drop the last item of a section or, without items, cut a text by a tenth; return False if nothing is left."""
    if any(filling.drop() for filling in reversed(fillings)):
        return True
    if fillings:
        fillings.pop()
        return True
    for text in reversed(texts):
        if shown := text.shown:
            text.cut(text.count(shown) * 9 // 10)
            if len(text.shown) >= len(shown):  # a coarse counter may count nothing for a short text
                text.shown = ""
            return True
    return False


def _shown(sections: Iterable[Section], texts: Iterable[_TextPart], fillings: Iterable[_Filling]) -> Iterator[Part]:
    text_parts, by_name = iter(texts), {each.section.name: each for each in fillings}
    for section in sections:
        if section.items is None:
            if shown := next(text_parts).shown:
                yield Part(section.name, shown)
        elif filling := by_name.get(section.name):
            yield Part(section.name, filling.text(), filling.chosen())


class _TextPart:
    """A text that is shown in full, cut to its head and tail with a line between them, or left out."""

    def __init__(self, section: Section, count: TokenCounter) -> None:
        self.section, self.count = section, count
        self.shown = section.head

    @property
    def is_cut(self) -> bool:
        return self.shown != self.section.head

    def cut(self, room: int) -> None:
        """Show as much as fits."""
        full, self.shown = self.section.head, ""
        cost = self.count(full)
        if cost <= room:
            self.shown = full
            return
        length = len(full) * max(0, room) // cost
        while length > _SHORTEST_CUT:
            shown = _head_and_tail(full, length, self.section.advice)
            if self.count(shown) <= room:
                self.shown = shown
                return
            length = length * 19 // 20


def _head_and_tail(text: str, length: int, advice: str) -> str:
    """Return the first and last lines of a text, about half of the kept characters each; long lines are cut."""
    head, tail = text[: length // 2], text[len(text) - length // 2 :]
    if "\n" in head[len(head) // 2 :]:
        head = head[: head.rindex("\n")]
    if "\n" in tail[: len(tail) // 2]:
        tail = tail[tail.index("\n") + 1 :]
    missing = len(text) - len(head) - len(tail)
    hint = f"; {advice}" if advice else ""
    return f"{head}\n(… {missing:,} characters left out here for lack of room{hint})\n{tail}"


@dataclass(slots=True)
class _Filling:
    """A section being filled: `shown` are the items shown, by index; `skipped` those that were too long.

    `largest_room` is the most room it was ever offered. An item that does not fit ends the section, so that the items
    shown are the first ones; an item that alone would fill much of the section is skipped instead.
    """

    section: Section
    count: TokenCounter
    separator_tokens: int
    shown: dict[int, str] = field(default_factory=dict)
    skipped: dict[int, tuple[str, int]] = field(default_factory=dict)
    next_index: int = 0
    largest_room: int = 0

    @property
    def _items(self) -> Sequence[Any]:
        return self.section.items or ()

    @property
    def missing(self) -> int:
        return self.section.total - len(self.shown)

    def fill(self, room: int) -> int:
        """Take the items that fit, in order; return the tokens they use."""
        before = room
        self.largest_room = max(self.largest_room, room)
        for index, (text, cost) in list(self.skipped.items()):
            if cost <= room:
                del self.skipped[index]
                self.shown[index] = text
                room -= cost
        misses = 0
        while self.next_index < len(self._items) and misses < _TRIES and room > 0:
            text = self.section.show(self._items[self.next_index])
            cost = self.count(text) + self.separator_tokens
            if cost <= room:
                self.shown[self.next_index] = text
                room, misses = room - cost, 0
            elif cost < self.largest_room * _LARGE_SHARE:
                break
            else:
                self.skipped[self.next_index] = text, cost
                misses += 1
            self.next_index += 1
        return before - room

    def chosen(self) -> list[Shown]:
        """Return the items shown, in order, each with its text."""
        found = [Shown(self._items[index], self.shown[index]) for index in sorted(self.shown)]
        order = self.section.order
        return found if order is None else sorted(found, key=lambda each: order(each.item))

    def drop(self) -> bool:
        """Drop the last item; return False if there is none."""
        if not self.shown:
            return False
        del self.shown[max(self.shown)]
        return True

    def text(self) -> str:
        lines = [self.section.head, *(text for _, text in self.chosen())]
        if self.missing:
            lines.append(_left_out(self.missing))
        return "\n".join(lines)


def _left_out(count: int) -> str:
    return f"({count:,} more left out for lack of room)"
