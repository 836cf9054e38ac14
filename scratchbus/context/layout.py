"""Lay out a context: sections within a token budget.

Some sections are never cut. The others show whole items and say how many were left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from scratchbus.context.tokens import TokenCounter
from scratchbus.errors import BudgetTooSmall

_TRIES: Final = 20
"""How many oversized items in a row end a section."""

_MUCH: Final = 0.5
"""An item that does not fit and needs more than this share of a section is skipped; a smaller one ends it."""

_SEPARATOR: Final = "\n\n"


@dataclass(slots=True)
class Section:
    """A part of a context: a head, then items by priority, each rendered by `show`.

    A section without items is never cut. `share` is the share of the remaining room it may fill before the later
    sections get theirs. `unread` counts items that were not even read because they could not fit.
    """

    name: str
    head: str
    items: Sequence[Any] | None = None
    show: Callable[[Any], str] = str
    share: float = 1.0
    unread: int = 0

    @property
    def total(self) -> int:
        """The number of items, shown or not."""
        return len(self.items or ()) + self.unread


@dataclass(slots=True)
class Laid:
    """A finished context: the text, its tokens, and by section the items shown and the number left out."""

    text: str
    tokens: int
    chosen: Mapping[str, list[Any]]
    left_out: Mapping[str, int]


def lay_out(sections: Sequence[Section], budget: int, count: TokenCounter) -> Laid:
    """Return the sections in this order, within the budget in total. Raises BudgetTooSmall.

    Each section in turn gets room up to its share; what is left over is then offered once more in the same order.
    """
    between = count(_SEPARATOR)
    room = budget - sum(count(section.head) + between for section in sections if section.items is None)
    fillings: list[_Filling] = []
    for section in sections:
        opening = count(section.head) + count(_left_out(section.total)) + 2 * between
        if section.items and opening <= room:
            fillings.append(_Filling(section, count, between))
            room -= opening
    for is_first in (True, False):
        for filling in fillings:
            room -= filling.fill(int(room * filling.section.share) if is_first else room)
    while True:
        text = _SEPARATOR.join(_texts(sections, fillings))
        tokens = count(text)
        if tokens <= budget:
            break
        if not any(filling.drop() for filling in reversed(fillings)):
            if not fillings:
                raise BudgetTooSmall(budget, tokens)
            fillings.pop()
    chosen = {each.section.name: [item for item, _ in each.chosen()] for each in fillings}
    left_out = {
        section.name: missing for section in sections if (missing := section.total - len(chosen.get(section.name, ())))
    }
    unsaid = ", ".join(f"{name} {missing}" for name, missing in left_out.items() if name not in chosen)
    more = _SEPARATOR.join(filter(None, (text, f"(left out for lack of room: {unsaid})")))
    if unsaid and count(more) <= budget:
        text, tokens = more, count(more)
    return Laid(text, tokens, chosen, left_out)


def _texts(sections: Iterable[Section], fillings: Iterable[_Filling]) -> Iterator[str]:
    by_name = {each.section.name: each for each in fillings}
    for section in sections:
        if section.items is None:
            yield section.head
        elif filling := by_name.get(section.name):
            yield filling.text()


@dataclass(slots=True)
class _Filling:
    """A section being filled: `taken` are the items shown, by index, `waiting` those that were too long.

    `most` is the most room it was ever offered. An item that does not fit ends the section, so that the items shown
    are the first ones; an item that alone would fill much of the section is skipped instead.
    """

    section: Section
    count: TokenCounter
    between: int
    taken: dict[int, str] = field(default_factory=dict)
    waiting: dict[int, tuple[str, int]] = field(default_factory=dict)
    at: int = 0
    most: int = 0

    @property
    def _items(self) -> Sequence[Any]:
        return self.section.items or ()

    @property
    def missing(self) -> int:
        return self.section.total - len(self.taken)

    def fill(self, room: int) -> int:
        """Take the items that fit, in order; return the tokens they use."""
        before = room
        self.most = max(self.most, room)
        for place, (text, cost) in list(self.waiting.items()):
            if cost <= room:
                del self.waiting[place]
                self.taken[place] = text
                room -= cost
        misses = 0
        while self.at < len(self._items) and misses < _TRIES and room > 0:
            text = self.section.show(self._items[self.at])
            cost = self.count(text) + self.between
            if cost <= room:
                self.taken[self.at] = text
                room, misses = room - cost, 0
            elif cost < self.most * _MUCH:
                break
            else:
                self.waiting[self.at] = text, cost
                misses += 1
            self.at += 1
        return before - room

    def chosen(self) -> list[tuple[Any, str]]:
        """Return the items shown, in order, each with its text."""
        return [(self._items[place], self.taken[place]) for place in sorted(self.taken)]

    def drop(self) -> bool:
        """Drop the last item; return False if there is none."""
        if not self.taken:
            return False
        del self.taken[max(self.taken)]
        return True

    def text(self) -> str:
        lines = [self.section.head, *(text for _, text in self.chosen())]
        if self.missing:
            lines.append(_left_out(self.missing))
        return "\n".join(lines)


def _left_out(count: int) -> str:
    return f"({count:,} more left out for lack of room)"
