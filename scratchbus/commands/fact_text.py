"""Facts as a text for an agent."""

from __future__ import annotations

from scratchbus.commands.fact_reads import moment_of, read_facts
from scratchbus.domain.checks import check_label
from scratchbus.domain.position import Position
from scratchbus.domain.tokens import TokenCounter
from scratchbus.domain.values import Moment, check_whole
from scratchbus.engine.steps import Step
from scratchbus.readmodel.scope import Core

SHORTEST = "a -> b -> c"
"""The shortest possible fact."""

_MORE = "({:,} more left out for lack of room)"


def render(
    core: Core,
    page: str,
    budget: int,
    count: TokenCounter,
    subject: str | None,
    at: Moment | None,
    until: Position | None,
) -> Step[str]:
    """Return the facts that are true now as lines, the last asserted first, in at most `budget` tokens."""
    check_whole("budget", budget)
    name = None if subject is None else check_label("subject", subject)
    ms, maximum = moment_of(at), most_in(budget, count)
    found, total = yield from read_facts(
        core, page, until, lambda known: known.find_and_count(known.now(ms), name, maximum), is_slow=True
    )
    return "\n".join(_fit([fact.triplet for fact in found], total, budget, count))


def most_in(budget: int, count: TokenCounter) -> int:
    """Return the most facts that fit into a budget."""
    return 1 + budget // max(1, count(SHORTEST))


def _fit(lines: list[str], total: int, budget: int, count: TokenCounter) -> list[str]:
    """Return the first lines that fit, and a line that counts the omitted ones; that line uses the budget too."""
    if len(lines) == total and count("\n".join(lines)) <= budget:
        return lines
    tokens_left = budget - count(_MORE.format(total))
    fitting: list[str] = []
    for line in lines:
        tokens_left -= count(f"{line}\n")
        if tokens_left < 0:
            break
        fitting.append(line)
    while fitting and count("\n".join([*fitting, _MORE.format(total - len(fitting))])) > budget:
        fitting.pop()
    shown = [*fitting, _MORE.format(total - len(fitting))]
    return shown if count("\n".join(shown)) <= budget else []
