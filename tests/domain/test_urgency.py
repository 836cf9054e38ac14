"""How urgent an observation is follows from what is known of it, and from the time."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from daemons.router import THRESHOLD
from scratchbus import Observation
from scratchbus.domain.urgency import HALF_LIFE, by_urgency, urgency
from scratchbus.domain.values import millis

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def observation(priority=90, confidence=0.6, occurrences=1, age=timedelta(0), seq=1):
    ms = millis(NOW - age)
    return Observation(
        id=f"{seq:026d}", page="main", type="risk_alert", content="x", source="s", priority=priority,
        confidence=confidence, occurrences=occurrences, added_ms=ms, added_seq=seq, ms=ms, seq=seq,
    )  # fmt: skip


def test_a_single_sighting_is_as_urgent_as_its_priority_times_its_confidence():
    assert urgency(observation(priority=90, confidence=0.6), NOW) == 54


def test_an_hour_of_silence_makes_it_less_urgent_and_a_half_life_half_as_urgent():
    assert urgency(observation(age=timedelta(hours=1)), NOW) < 54
    assert urgency(observation(age=HALF_LIFE), NOW) == 27


def test_an_attack_passes_the_threshold_with_the_third_attempt():
    urgencies = [urgency(observation(occurrences=times), NOW) for times in (1, 2, 3)]
    assert [each >= THRESHOLD for each in urgencies] == [False, False, True]


def test_what_nobody_believes_is_not_urgent_however_often_it_is_seen():
    assert urgency(observation(confidence=0, occurrences=1_000), NOW) == 0


def test_a_clock_behind_the_engines_does_not_make_it_more_urgent():
    assert urgency(observation(age=timedelta(hours=-1)), NOW) == 54


def test_the_most_urgent_comes_first_and_of_equals_the_older_one():
    quiet, loud = observation(seq=1), observation(occurrences=9, seq=2)
    also_quiet = observation(seq=3)
    assert [each.seq for _, each in by_urgency([also_quiet, quiet, loud], NOW)] == [2, 1, 3]


@given(
    st.integers(0, 100), st.floats(0, 1), st.integers(1, 10**9), st.integers(1, 10**9), st.timedeltas(timedelta(0))
)  # fmt: skip
def test_more_sightings_never_make_it_less_urgent(priority, confidence, few, more, silence):
    now = NOW + min(silence, timedelta(days=365_000))
    quiet = urgency(observation(priority, confidence, few), now)
    loud = urgency(observation(priority, confidence, few + more), now)
    assert 0 <= quiet <= loud <= 100
