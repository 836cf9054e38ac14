"""The report on rounds, as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.faults.history.case import History, Violation
from tests.faults.history.judge import KINDS, has_refused_new_data
from tests.faults.history.roles import CREW

FAULTS = {
    **{f"kill {role}": f"kills of {role}s" for role in (*CREW, "engine")},
    "pause": "pauses of processes",
    "pause engine": "pauses of engines",
    "failover": "failovers",
    "late failover": "failovers with writes lost",
    "flush": "flushes",
    "drop replies": "storms on connections",
    "dropped": "requests and replies dropped",
    "delay replies": "periods of late replies",
    "power cut": "power cuts",
    "unsynced": "bytes that power cuts dropped",
    "skewed failover": "failovers to a skewed clock",
    "cut requests": "partitions of requests",
    "cut replies": "partitions of replies",
    "cut requests of one": "partitions of one's requests",
    "cut replies of one": "partitions of one's replies",
    "cut to replica": "partitions to the replica",
    "cut from replica": "partitions from the replica",
    "foreign entry": "entries added by hand",
}
"""The names of faults in reports."""


TALLIED = ("observations linearized", "observations undecided", "observations skipped")
"""The counters of the linearizability checker in reports."""


def sum_up(
    seed: int,
    seconds: float,
    rounds: Iterable[tuple[History, list[Violation]]],
    tally: Mapping[str, int],
    notes: Sequence[str],
) -> dict[str, Any]:
    """Return the numbers of rounds, notes on them, and each violation with its evidence."""
    told, did, kinds, refusals = Counter[str](), Counter[str](), Counter[str](), 0
    events, archived, found = 0, 0, list[dict[str, str]]()
    for history, violations in rounds:
        told.update(record.what for record in history.records)
        did.update(history.did)
        refusals += sum(has_refused_new_data(history, record) for record in history.records)
        kinds.update(violation.kind for violation in violations)
        archived += sum(record.told["events"] for record in history.records if record.what == "archived")
        events += sum(len(reign.log.entries) for reign in history.reigns if reign.by != "failover")
        found += [violation._asdict() for violation in violations]
    return {
        "seed": seed,
        "seconds": seconds,
        "events": events,
        "operations": told["invoke"],
        "reads": told["read"],
        "looks at views": told["saw"],
        "events followed": told["followed"] + told["change"],
        "deliveries": told["handed"],
        "jobs": told["job"],
        "events archived": archived,
        "older processes that refused": refusals,
        **{name: tally.get(name, 0) for name in TALLIED},
        "notes": list(notes),
        "faults": {name: did[kind] for kind, name in FAULTS.items()},
        "violations": {kind: kinds[kind] for kind in KINDS},
        "found": found,
    }


def table(report: dict[str, Any]) -> str:
    """Return a report as lines of a name and a number each."""
    rows = [(name, value) for name, value in report.items() if isinstance(value, int | float)]
    rows += report["faults"].items()
    rows += [(f"violations: {kind}", count) for kind, count in report["violations"].items()]
    return "\n".join([f"{name:<34}{value:>10,}" for name, value in rows] + report["notes"])
