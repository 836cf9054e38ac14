"""The examples of the OpenAPI document: the requests of a fraud detector, and their answers."""

from __future__ import annotations

from typing import Any, Final

ID: Final = "01M82NHKCCEBT4DDKQ2K3C35T3"

TYPES: Final = (
    "action_suggestion",
    "contextual_insight",
    "dependency",
    "observation",
    "pattern_detected",
    "pending_confirmation",
    "reminder",
    "risk_alert",
)
"""The types that come with scratchbus."""

NEW_OBSERVATION: Final[dict[str, Any]] = {
    "type": "risk_alert",
    "content": "A fraud ring targets customers of the shop",
    "confidence": 0.9,
    "tags": ["security", "fraud"],
    "ttl": "2h",
    "context": {"task_id": "t1"},
}

OBSERVATION: Final[dict[str, Any]] = {
    "id": ID,
    "type": "risk_alert",
    "content": "A fraud ring targets customers of the shop",
    "source": "fraud_detector",
    "owner": None,
    "status": "active",
    "confidence": 0.9,
    "context": {"task_id": "t1"},
    "tags": ["security", "fraud"],
    "created_at": "2026-11-22T22:20:35.607000Z",
    "updated_at": "2026-11-22T22:20:35.607000Z",
    "expires_at": "2026-11-23T00:20:35.607000Z",
    "metadata": {},
    "page": "main",
    "version": 1,
    "position": "1795386035607-1",
    "priority": 90,
    "added": "1795386035607-1",
}

CLAIMED: Final[dict[str, Any]] = {
    "by": "executor-1",
    "fence": 1,
    "until": "2026-11-22T22:21:05.625000Z",
    "owner": "275290c331fec96d36e11a73",
}

ADDED_EVENT: Final[dict[str, Any]] = {
    "position": "1795386035607-1",
    "id": "IRQJtwDaecy0145~1a205758442-6a",
    "page": "main",
    "subject": ID,
    "kind": "added",
    "type": "risk_alert",
    "batch": "1/1",
    "by": "fraud_detector",
    "content": "A fraud ring targets customers of the shop",
    "status": "active",
    "status_class": "open",
    "confidence": 0.9,
    "context": {"task_id": "t1"},
    "tags": ["security", "fraud"],
    "metadata": {},
    "priority": 90,
    "expires_at": "2026-11-23T00:20:35.607000Z",
    "evidence": [],
    "blocked_by": [],
    "ttl": 7200000,
    "times": 1,
    "at": "2026-11-22T22:20:35.607000Z",
}

ERASED: Final[dict[str, Any]] = {
    "position": "1795386090000-9",
    "id": "WjTmOHP_nvd55~1a2057eb704-77",
    "page": "main",
    "subject": ID,
    "kind": "erased",
    "type": "risk_alert",
    "batch": "1/1",
    "by": "operator",
    "reason": "a customer asked for it",
    "positions": ["1795386035607-1"],
    "version": 2,
    "at": "2026-11-22T22:21:30Z",
}

CONSEQUENCES: Final[dict[str, Any]] = {
    "id": ID,
    "page": "main",
    "observations": {ID: OBSERVATION},
    "beneath": {ID: []},
    "actions": ["goal-17"],
    "events": [],
}

EXPOSURE: Final[dict[str, Any]] = {
    "id": ID,
    "page": "main",
    "seen": [
        {
            "session": "s1",
            "agent": None,
            "by": "planner",
            "version": 1,
            "at": "2026-11-22T22:21:00Z",
            "times": 2,
        }
    ],
    "actions": [{"action": "goal-17", "id": ID, "page": "main", "by": "executor-1", "at": "2026-11-22T22:22:00Z"}],
}

TRACE: Final[dict[str, Any]] = {
    "action": "goal-17",
    "page": "main",
    "motives": [{"id": ID, "by": "executor-1", "at": "2026-11-22T22:22:00Z"}],
    "observations": {ID: OBSERVATION},
}

DIFFERENCE: Final[dict[str, Any]] = {
    "difference": "changed",
    "id": ID,
    "fields": {"status": {"before": "active", "after": "resolved"}},
    "before": OBSERVATION,
    "after": {**OBSERVATION, "status": "resolved", "version": 2, "position": "1795386095000-10"},
}

SUBSCRIPTION: Final[dict[str, Any]] = {
    "name": "router",
    "filters": {"types": ["risk_alert"]},
    "cursor": "0-0",
    "lag": 1,
    "lag_seconds": 0.002,
    "holder": None,
    "since": None,
    "until": None,
    "trying": None,
    "attempts": 0,
    "dead_letters": 0,
    "dropped": None,
    "max_attempts": 5,
    "retry_delay": 1.0,
    "url": None,
}

PULLED: Final[dict[str, Any]] = {
    "token": "752668246383f4f78ecd233e562eed18",
    "until": "2026-11-22T22:21:05.625000Z",
    "deliveries": [{"position": "1795386035607-1", "attempt": 1, "event": ADDED_EVENT}],
}

DEAD_LETTER: Final[dict[str, Any]] = {
    "subscription": "router",
    "position": "1795386035607-1",
    "event_id": "IRQJtwDaecy0145~1a205758442-6a",
    "page": "main",
    "subject": ID,
    "kind": "added",
    "reason": "the database is away",
    "attempts": 5,
    "at": "2026-11-22T22:25:35.607000Z",
}
