"""What came of rounds, in numbers: a table for people, and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.faults.history.case import History, Violation
from tests.faults.history.judge import KINDS


def sum_up(seed: int, seconds: float, rounds: Iterable[tuple[History, list[Violation]]]) -> dict[str, Any]:
    """Return the numbers of rounds, and each violation with its evidence."""
    told, did, kinds = Counter[str](), Counter[str](), Counter[str]()
    events, found = 0, list[dict[str, str]]()
    for history, violations in rounds:
        told.update(record.what for record in history.records)
        did.update(history.did)
        kinds.update(violation.kind for violation in violations)
        events += sum(len(reign.log.entries) for reign in history.reigns if reign.by != "failover")
        found += [violation._asdict() for violation in violations]
    return {
        "seed": seed,
        "seconds": seconds,
        "events": events,
        "operations": told["invoke"],
        "reads": told["read"] + told["saw"],
        "followed": told["followed"] + told["change"],
        "deliveries": told["handed"],
        "jobs": told["job"],
        **{_plural(kind): count for kind, count in sorted(did.items())},
        "violations": {kind: kinds[kind] for kind in KINDS},
        "found": found,
    }


def _plural(kind: str) -> str:
    verb, _, target = kind.partition(" ")
    if verb == "kill":
        return f"kills of {target}s"
    return {"pause": "pauses", "flush": "flushes"}.get(kind, kind if kind.endswith("s") else f"{kind}s")


def table(report: dict[str, Any]) -> str:
    """Return a report as lines of a name and a number each."""
    rows = [(name, value) for name, value in report.items() if name not in ("violations", "found")]
    rows += [(f"violations: {kind}", count) for kind, count in report["violations"].items()]
    return "\n".join(f"{name:<34}{value:>10,}" for name, value in rows)
