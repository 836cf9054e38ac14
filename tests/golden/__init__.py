"""Golden files of each schema version: the entries of a log, and the state that they fold to.

`python -m tests.golden` writes the files of the current version, once; they are never changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scratchbus.domain.events import EVENTS, SCHEMA
from scratchbus.eventlog.codec import encode_body
from scratchbus.eventlog.raw_entries import RawEntry
from scratchbus.projections import subjects
from tests.oracle.fold import fold as fold_log

HERE = Path(__file__).parent
BEGIN = 1_795_256_156_929
"""The time (ms) of the first event."""

_WHY: dict[str, Any] = {
    "by": "tester",
    "cause": "1795256156929-1",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
}
_LATER = datetime(2100, 1, 2, 3, 4, 5, 678_000, UTC)

STORY: list[tuple[str, str, dict[str, Any]]] = [
    ("A", "added", {"content": "it"}),
    (
        "B",
        "added",
        {
            "content": "Zoë saw «it»\n",
            "source": "fraud_detector",
            "owner": "agent",
            "status": "pending_review",
            "status_class": "open",
            "confidence": 0.25,
            "context": {"task": "t1", "deep": [1, {"x": None}]},
            "tags": ["security", "a,b|c%"],
            "metadata": {"score": 0.1, "empty": []},
            "priority": 90,
            "ttl": 3_600_000,
            "dedupe_key": "k|1",
            "times": 3,
            "evidence": ["A", "GONE"],
            "remind_at": _LATER,
            "remind_on": {"type": "risk_alert", "status": "active", "tags": ["security"]},
        },
    ),
    ("C", "added", {"content": "of C", "expires_at": _LATER}),
    ("E", "added", {"content": "of E", "status": "kept", "status_class": "closed"}),
    ("B", "repeated", {"times": 2, "ttl": 7_200_000, "evidence": ["C"]}),
    ("C", "repeated", {"expires_at": _LATER}),
    ("A", "updated", {"changes": {
        "content": "else", "owner": None, "confidence": 1.0, "context": {"c": 1}, "tags": ["t"], "metadata": {"m": []},
        "expires_at": _LATER,
    }}),
    ("B", "due", {"trigger": "1795256156931-3"}),
    ("A", "claimed", {"holder": "executor-1", "ttl": 30_000, "picked": True, "work": "hands"}),
    ("A", "claimed", {"holder": "executor-1", "ttl": 60_000, "fence": 1}),
    ("A", "released", {"backoff": 5_000, "untried": True, "reason": "busy"}),
    ("C", "claimed", {"holder": "executor-2", "ttl": 1}),
    ("C", "lapsed", {}),
    ("A", "linked", {"action": "goal-17"}),
    ("A", "status_changed", {
        "status": "resolved", "status_class": "closed", "reason_code": "resolved", "reason": "done",
        "archive_after": 86_400_000,
    }),
    ("A", "status_changed", {
        "status": "active", "status_class": "open", "reason_code": "reopened", "ttl": 1_000,
    }),
    ("B", "status_changed", {
        "status": "pending_review", "status_class": "open", "reason_code": "reviewed", "reason": "refuted",
        "chain": ["GONE", "A"],
    }),
    ("C", "status_changed", {
        "status": "archived", "status_class": "final", "reason_code": "refuted", "reason": "misread",
    }),
    ("D", "added", {"content": "of D"}),
    ("D", "status_changed", {"status": "resolved", "status_class": "closed", "reason_code": "resolved"}),
    ("D", "cleared", {}),
    ("F", "added", {"content": "of F", "tags": ["private"]}),
    ("F", "erased", {"reason": "asked for by whom it was about", "positions": ["1795256156952-23"], "version": 2}),
    ("types", "types_changed", {"text": "types:\n  observation:\n"}),
    ("note_1795256156955", "note_added", {"content": "archived"}),
    ("session", "session_ended", {}),
    ("notepad", "notepad_written", {"content": "# Plan\n- [ ] survey"}),
    ("notepad", "notepad_edited", {
        "operation": "find_replace", "find": "[ ]", "replace": "[x]", "replace_all": True,
    }),
    ("notepad", "notepad_edited", {"operation": "append", "content": "\nFound: Zoë"}),
    ("notepad", "notepad_edited", {"operation": "delete", "content": "# Plan\n"}),
    ("note_1795256156956", "note_added", {"content": "rows 234–267", "tags": ["Analysis"]}),
    ("note_1795256156957", "note_added", {"content": "of no use"}),
    ("note_1795256156956", "note_updated", {"content": "rows 251–267", "tags": ["analysis", "bug"]}),
    ("note_1795256156957", "note_deleted", {}),
    ("session", "session_started", {"parent": "s0", "fork": True}),
    ("session", "session_spawned", {"session": "s2", "fork": True, "copied": True}),
    ("todo", "todo_written", {"todos": [
        {"id": "1", "content": "survey", "status": "in_progress"}, {"id": "2", "content": "fix"},
    ]}),
    ("todo", "todo_written", {"todos": [{"id": "2", "content": "fix Zoë's", "status": "completed"}], "merge": True}),
    ("task_1795256156958", "task_begun", {"title": "survey"}),
    ("task_1795256156958", "task_ended", {"summary": "six sheets"}),
    ("scratchpad", "scratchpad_written", {"content": "Mondays only"}),
    ("scratchpad", "run_ended", {
        "task": "survey", "outcome": "completed", "summary": "six sheets",
        "steps": [{"name": "look", "details": {"at": 1, "of": None}}],
    }),
    ("context_session:s1", "context_rendered", {
        "session": "s1", "agent": "analyst", "observations": {"A": 9, "B": 4}, "tokens": 2_000,
        "files": {"CLAUDE.md": "ab" * 32},
    }),
    ("B", "status_changed", {
        "status": "archived", "status_class": "final", "reason_code": "refuted", "reason": "misread",
        "seen_by": ["session:s1", "agent:analyst"], "followed": ["goal-17"],
    }),
    ("A", "claimed", {"holder": "executor-1", "ttl": 30_000, "owner": "3f1c0a9be27d54816f20c7aa"}),
    ("preference_52c7bb68ca9e3088", "preference_remembered", {
        "key": "quotes in JS", "text": "always “double”", "said_by": "Zoë",
    }),
    ("preference_52c7bb68ca9e3088", "preference_forgotten", {}),
    ("preference_52c7bb68ca9e3088", "preference_remembered", {"key": "Quote in JS", "text": "double"}),
    ("fact_1795256156977", "fact_asserted", {
        "about": "Zoë", "relation": "lives_in", "object": "New York", "valid_at": _LATER, "invalid_at": _LATER,
        "confidence": 0.5, "evidence": ["A"], "source_text": "Zoë moved to New York",
    }),
    ("fact_1795256156977", "fact_retracted", {"reason": "it was misread", "refuted": "A"}),
    ("item_a0317f521930a42c56c344b2de397568", "item_put", {
        "namespace": ["users", "Zoë"], "key": "food", "value": {"likes": ["pizza"], "n": 1.5}, "text": "pizza",
        "ttl": 60_000,
    }),
    ("item_a0317f521930a42c56c344b2de397568", "item_used", {}),
    ("item_a0317f521930a42c56c344b2de397568", "item_deleted", {}),
    ("item_a0317f521930a42c56c344b2de397568", "item_put", {
        "namespace": ["users", "Zoë"], "key": "food", "value": {},
    }),
    ("turn_1795256156983", "turn_appended", {
        "role": "user", "content": "Which total, Zoë?", "tokens": 5, "task": "task_1795256156958",
    }),
    ("turn_1795256156984", "turns_compacted", {
        "turns": ["turn_1795256156983"], "content": "the totals", "tokens": 3,
    }),
    ("file_5df2ba901450256019d6", "file_written", {"path": "notes/plan.md", "size": 12, "sha256": "cd" * 32}),
    ("file_5df2ba901450256019d6", "file_removed", {"path": "notes/plan.md", "why": "age"}),
    ("text_5df2ba901450256019d6", "text_written", {
        "path": "notes/plan.md", "content": "survey\nfix", "source": "notes/old.md",
    }),
    ("text_5df2ba901450256019d6", "text_edited", {"find": "fix", "content": "fix Zoë's"}),
    ("text_5df2ba901450256019d6", "text_edited", {"line": 1, "content": "between"}),
    ("text_5df2ba901450256019d6", "text_deleted", {"target": "notes/new.md"}),
    ("relations", "relations_changed", {"text": "relations:\n  uses: {}\n"}),
    ("G", "added", {
        "content": "of G", "blocked_by": ["A"], "not_before": _LATER, "remind_at": _LATER, "every": "0 3 * * mon-fri",
    }),
    ("G", "due", {"next": _LATER}),
]  # fmt: skip
"""The events: subject, kind and body. Every field of every kind occurs."""


def write() -> None:
    """Write the files of the current version. Raises FileExistsError if they exist: golden files never change."""
    with log_file(SCHEMA).open("x") as file:
        file.writelines(json.dumps(_as_json(entry), ensure_ascii=False) + "\n" for entry in current_entries())
    with state_file(SCHEMA).open("x") as file:
        file.writelines(json.dumps(document, ensure_ascii=False) + "\n" for document in fold(SCHEMA))


def current_entries() -> Iterator[RawEntry]:
    """Yield the story as entries of the current version; the first two are a batch."""
    last: dict[str, str] = {}
    for seq, (subject, kind, body) in enumerate(STORY, 1):
        event = EVENTS[kind](**_WHY, **body)
        id, is_of_bus = f"{BEGIN + seq}-{seq}", kind in ("types_changed", "relations_changed")
        fields = {
            "id": f"event-{seq}",
            "subject": subject,
            "page": "_bus" if is_of_bus else _page_of(subject),
            "kind": kind,
            "type": "" if is_of_bus or subjects.is_remembered(subject) else "risk_alert",
            "batch": f"{seq}/2" if seq <= 2 else "1/1",
            "prev": last.get(subject, ""),
            "event": encode_body(event).decode(),
        }
        last[subject] = id
        yield _as_entry({"id": id, "fields": fields})


def _page_of(subject: str) -> str:
    if subject.startswith("fact_"):
        return "knowledge:p1"
    return "session:s1" if subjects.is_remembered(subject) else "main"


def read(version: int) -> list[RawEntry]:
    """Return the entries that a version wrote."""
    return [_as_entry(json.loads(line)) for line in log_file(version).read_text().splitlines()]


def fold(version: int) -> list[Any]:
    """Return the documents that the entries of a version fold to, in the order of their ids."""
    folded = fold_log(read(version), 0)
    documents = {subject: each for (_, subject), each in (folded.observations() | folded.memories()).items()}
    return [
        document.model_dump(mode="json", exclude_defaults=True, exclude_computed_fields=True)
        for _, document in sorted(documents.items())
    ]


def log_file(version: int) -> Path:
    """Return the path of the entries of a version."""
    return HERE / f"v{version}.jsonl"


def state_file(version: int) -> Path:
    """Return the path of the state that they fold to."""
    return HERE / f"v{version}.state.jsonl"


def _as_json(entry: RawEntry) -> dict[str, Any]:
    flat = [part.decode() for part in entry[1]]
    return {"id": entry[0].decode(), "fields": dict(zip(flat[::2], flat[1::2], strict=True))}


def _as_entry(line: dict[str, Any]) -> RawEntry:
    return [line["id"].encode(), [part.encode() for field in line["fields"].items() for part in field]]
