"""The faults of a round, drawn from a seed: the same seed gives the same faults at the same times."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import NamedTuple

from tests.faults.machines import compiler

DECK = {
    "kill": 8,
    "pause": 4,
    "kill engine": 2,
    "pause engine": 1,
    "failover": 1,
    "late failover": 1,
    "drop replies": 3,
    "delay replies": 2,
    "flush": 1,
    "power cut": 2,
    "skewed failover": 1,
    "cut requests": 1,
    "cut replies": 1,
    "cut requests of one": 1,
    "cut replies of one": 1,
    "cut to replica": 1,
    "cut from replica": 1,
    "foreign entry": 1,
}
"""The deck of cards: the number of cards of each kind of fault."""

COMPILED = ("power cut", "skewed failover")
"""Faults that need a C compiler, and are left out without one."""

TARGETED = ("kill", "pause", "cut requests of one", "cut replies of one")
"""Faults of a single process."""

LASTING = {
    "pause": (0.3, 2.5),  # claims last a second, leases half of one
    "pause engine": (0.1, 0.8),
    "late failover": (0.05, 0.3),
    "drop replies": (0.2, 0.8),
    "delay replies": (0.2, 0.8),
    "skewed failover": (-3.0, 3.0),
    "cut requests": (0.2, 1.0),
    "cut replies": (0.2, 1.0),
    "cut requests of one": (0.5, 3.0),  # some longer than clients wait for a reply
    "cut replies of one": (0.5, 3.0),
    "cut to replica": (0.2, 1.2),  # shorter than what the archive leaves in the log
    "cut from replica": (0.2, 1.2),
    "foreign entry": (0.1, 0.6),  # until it is removed
}
"""The duration of some faults in seconds; for a skewed failover, by how much the new clock is ahead."""


class Fault(NamedTuple):
    """A fault: its time (seconds from the start), kind, target process, and duration."""

    at: float
    kind: str
    target: str
    lasts: float


def playable() -> list[str]:
    """Return the kinds of faults that are possible on this machine."""
    return [kind for kind in DECK if compiler() or kind not in COMPILED]


def draw(seed: int, seconds: float, crew: Mapping[str, int], kinds: Collection[str] = tuple(DECK)) -> list[Fault]:
    """Return the faults of a round; `crew` has the number of processes of each role."""
    random, deck, faults = Random(seed), list[str](), list[Fault]()
    members = [f"{role}-{number}" for role, count in crew.items() for number in range(count)]
    at = 0.3
    while kinds and at < seconds - 0.5:
        if not deck:
            deck = [kind for kind in DECK if kind in kinds for _ in range(DECK[kind])]
            random.shuffle(deck)
        kind = deck.pop()
        target = random.choice(members) if kind in TARGETED else ""
        faults.append(Fault(at, kind, target, random.uniform(*LASTING.get(kind, (0, 0)))))
        at += random.uniform(0.1, 0.6)
    return faults
