"""What clients could log without end is limited, and nothing else is."""

from typing import Any

import pytest

from scratchbus.errors import EngineUnreachable
from scratchbus.telemetry import logs
from scratchbus.telemetry.logs import LINES_AT_ONCE, LINES_SECONDS, LimitedLogger


class Lines(list[Any]):
    """A logger that keeps its lines."""

    def warning(self, event: str, **fields: Any) -> None:
        self.append((event, fields))

    error = warning


def test_a_flood_of_one_event_is_cut_and_counted():
    lines, now = Lines(), [0.0]
    logger = LimitedLogger(lines, lambda: now[0])
    for number in range(LINES_AT_ONCE + 5):
        logger.warning("engine unreachable", number=number)
    assert [fields["number"] for _, fields in lines] == list(range(LINES_AT_ONCE))
    logger.error("request failed")
    assert lines.pop() == ("request failed", {})
    now[0] = LINES_SECONDS
    logger.warning("engine unreachable", number=99)
    logger.warning("engine unreachable", number=100)
    assert lines[LINES_AT_ONCE:] == [
        ("engine unreachable", {"number": 99, "left_out": 5}),
        ("engine unreachable", {"number": 100}),
    ]


def test_refused_requests_do_not_flood_the_log(monkeypatch: pytest.MonkeyPatch):
    problems = pytest.importorskip("scratchbus.http.problems")
    lines = Lines()
    monkeypatch.setattr(problems, "limited_logger", logs.LimitedLogger(lines))
    for _ in range(1_000):
        assert problems.problem_of(EngineUnreachable("redis://x: refused")).status_code == 503
    assert len(lines) == LINES_AT_ONCE
