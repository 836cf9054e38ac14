"""The urgency of an observation depends on its fields and the time."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemons.router import THRESHOLD
from scratchbus import Observation
from scratchbus.domain.urgency import HALF_LIFE, by_urgency, urgency
from scratchbus.domain.values import millis
from scratchbus.errors import InvalidField

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def observation(priority=90, confidence=0.6, occurrences=1, age=timedelta(0), seq=1):
    ms = millis(NOW - age)
    return Observation(
        id=f"{seq:026d}", page="main", type="risk_alert", content="x", source="s", priority=priority,
        confidence=confidence, occurrences=occurrences, added_ms=ms, added_seq=seq, ms=ms, seq=seq,
    )  # fmt: skip


def test_urgency_of_one_sighting_is_priority_times_confidence():
    assert urgency(observation(priority=90, confidence=0.6), NOW) == 54


def test_urgency_halves_after_a_half_life_of_silence():
    assert urgency(observation(age=timedelta(hours=1)), NOW) < 54
    assert urgency(observation(age=HALF_LIFE), NOW) == 27


def test_an_attack_passes_the_threshold_with_the_third_attempt():
    urgencies = [urgency(observation(occurrences=times), NOW) for times in (1, 2, 3)]
    assert [each >= THRESHOLD for each in urgencies] == [False, False, True]


@pytest.mark.parametrize("half_life", [timedelta(0), timedelta(days=-1)])
def test_a_half_life_is_positive(half_life):
    with pytest.raises(InvalidField, match=r"half_life: .* is not above 0"):
        urgency(observation(age=HALF_LIFE), NOW, half_life)
    with pytest.raises(InvalidField, match=r"half_life: .* is not above 0"):
        by_urgency([], NOW, half_life)


def test_zero_confidence_is_never_urgent():
    assert urgency(observation(confidence=0, occurrences=1_000), NOW) == 0


def test_a_clock_behind_the_engines_does_not_raise_urgency():
    assert urgency(observation(age=timedelta(hours=-1)), NOW) == 54


def test_by_urgency_puts_the_older_first_among_equals():
    quiet, loud = observation(seq=1), observation(occurrences=9, seq=2)
    also_quiet = observation(seq=3)
    assert [each.seq for _, each in by_urgency([also_quiet, quiet, loud], NOW)] == [2, 1, 3]


@given(
    st.integers(0, 100), st.floats(0, 1), st.integers(1, 10**9), st.integers(1, 10**9), st.timedeltas(timedelta(0))
)  # fmt: skip
def test_more_sightings_never_lower_urgency(priority, confidence, few, more, silence):
    now = NOW + min(silence, timedelta(days=365_000))
    quiet = urgency(observation(priority, confidence, few), now)
    loud = urgency(observation(priority, confidence, few + more), now)
    assert 0 <= quiet <= loud <= 100
