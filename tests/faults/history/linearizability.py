"""Search for an order of operations, each between its call and its answer, in which a model gives all answers.

The search is that of Wing and Gong with Lowe's memoization: a pair of completed operations and resulting state is tried
only once. An operation that fits and changes nothing is taken at once, since postponing it cannot help.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, Literal, TypeVar

S = TypeVar("S", bound=Hashable)

Apply = Callable[[S, Any], S | None]
"""Returns the state after an operation, or None if its answer is impossible in this state."""


@dataclass(frozen=True)
class Operation:
    """An operation that happened between two times; `optional` if it may not have happened.

    An operation without an answer ends at infinity.
    """

    call: float
    ret: float
    what: Any
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.call:.3f} to {self.ret:.3f}{', perhaps' if self.optional else ''}: {self.what}"


@dataclass(frozen=True)
class Verdict(Generic[S]):
    """The result and the number of steps; "no" has the longest order found and the operations that could not follow."""

    answer: Literal["yes", "no", "undecided"]
    steps: int
    order: tuple[Operation, ...] = ()
    state: S | None = None
    stuck: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        tail = "; ".join(map(str, self.order[-6:]))
        stuck = "; or ".join(map(str, self.stuck[:6]))
        return f"after [{tail}] it is {self.state}, and no order goes on with [{stuck}]"


def linearize(operations: Sequence[Operation], initial: S, apply: Apply[S], budget: int) -> Verdict[S]:
    """Search for an order; give up after `budget` steps."""
    ops = sorted(operations, key=lambda each: (each.ret, each.call))
    needed = sum(1 << index for index, each in enumerate(ops) if not each.optional)
    seen: set[tuple[int, S]] = set()
    best: tuple[int, tuple[int, ...], S, list[int]] = (-1, (), initial, [])
    steps = 0
    stack: list[tuple[int, S, tuple[int, ...]]] = [(0, initial, ())]
    while stack:
        done, state, order = stack.pop()
        if done & needed == needed:
            return Verdict("yes", steps)
        if (done, state) in seen:
            continue
        seen.add((done, state))
        steps += 1
        if steps > budget:
            return Verdict("undecided", steps)
        near = _candidates(ops, done)
        nexts = []
        for index in near:
            after = apply(state, ops[index].what)
            if after == state and not ops[index].optional:
                nexts = [(index, after)]
                break
            if after is not None and after != state:
                nexts.append((index, after))
        if len(order) > best[0]:
            best = len(order), order, state, near
        for index, after in reversed(nexts):  # so that the operation that ends first is tried first
            stack.append((done | 1 << index, after, (*order, index)))
    _, order, state, near = best
    return Verdict("no", steps, tuple(ops[index] for index in order), state, tuple(ops[index] for index in near))


def _candidates(ops: list[Operation], done: int) -> list[int]:
    """Return the operations that may come next: those called before any other remaining one has ended."""
    near, first = [], inf
    for index, each in enumerate(ops):
        if not done >> index & 1:
            if not each.optional:
                first = min(first, each.ret)
            if each.call <= first:
                near.append(index)
    return [index for index in near if ops[index].call <= first]
