"""What is going to fail in a round, drawn from a seed: the same seed, the same faults at the same moments."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import NamedTuple

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
}
"""The kinds of faults, and how many there are of each between two shuffles."""

LASTING = {
    "pause": (0.3, 2.5),  # claims last a second, leases half of one
    "pause engine": (0.1, 0.8),
    "late failover": (0.05, 0.3),
    "drop replies": (0.2, 0.8),
    "delay replies": (0.2, 0.8),
}
"""For how many seconds some of them last."""


class Fault(NamedTuple):
    """One thing that fails: when (seconds from the start), what, to whom, and for how long."""

    at: float
    kind: str
    target: str
    lasts: float


def draw(seed: int, seconds: float, crew: Mapping[str, int], kinds: Collection[str] = tuple(DECK)) -> list[Fault]:
    """Return the faults of a round; `crew` says how many there are of each role."""
    random, deck, faults = Random(seed), list[str](), list[Fault]()
    members = [f"{role}-{number}" for role, count in crew.items() for number in range(count)]
    at = 0.3
    while kinds and at < seconds - 0.5:
        if not deck:
            deck = [kind for kind in DECK if kind in kinds for _ in range(DECK[kind])]
            random.shuffle(deck)
        kind = deck.pop()
        target = random.choice(members) if kind in ("kill", "pause") else ""
        faults.append(Fault(at, kind, target, random.uniform(*LASTING.get(kind, (0, 0)))))
        at += random.uniform(0.1, 0.6)
    return faults
