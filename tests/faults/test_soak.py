"""The soak measures memory and disk, and reports what exceeds its limits."""

from __future__ import annotations

import pytest

from tests.faults.history.soak import Limits, above_limits, soak, summary

LIMITS = Limits(memory=400, disk=500)


def test_a_series_that_ends_above_its_limit_is_a_violation() -> None:
    growing = [(float(t), 100.0 + 5 * t) for t in range(100)]
    level = [(float(t), 300.0) for t in range(100)]
    found = above_limits({"memory of a": growing, "memory of b": level, "disk": growing}, LIMITS)
    assert [violation.where for violation in found] == ["memory of a", "disk"]


def test_a_passing_peak_is_not_a_violation() -> None:
    assert above_limits({"memory of a": [(float(t), 900.0 if t == 50 else 100.0) for t in range(100)]}, LIMITS) == []


def test_growth_is_measured_over_the_last_half() -> None:
    levelled = [(float(t), min(t, 50.0)) for t in range(100)]
    growing = [(float(t), t * 1.0) for t in range(100)]
    report = summary({"a": levelled, "b": growing})
    assert report["a"]["growth per hour"] == pytest.approx(0, abs=1)
    assert report["b"]["growth per hour"] == pytest.approx(3600)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.timeout(400)
def test_roles_engines_and_disk_are_measured() -> None:
    series, found = soak(3.0, 1, Limits(memory=1000, disk=1000))
    assert found == []
    for name in ("memory of publisher-0", "memory of archiver-1", "memory of primary", "disk of replica", "disk"):
        assert series[name][-1][1] > 0
