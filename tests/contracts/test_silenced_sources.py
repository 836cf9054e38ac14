"""Pages as they would be without some sources: without their observations and all that rest on these."""

from collections.abc import Callable

import pytest

from scratchbus import Bus, Page, PastPage, because
from scratchbus.errors import InvalidSource, NotFound
from scratchbus.scheduling.expiry import sweep
from tests.engines import ONE
from tests.inspection import project, raw_append

pytestmark = pytest.mark.engines(*ONE)


@pytest.fixture
def buses(connect):
    """The same bus, opened by the silenced tool and by another."""
    return connect("noisy", max_observations=4), connect("other", max_observations=4)


@pytest.fixture
def bus(buses):
    return buses[1]


@pytest.fixture
def pages(buses):
    """The same page, opened by both."""
    return tuple(each.page() for each in buses)


@pytest.fixture
def silent(bus):
    """Return a page as it would have been without some sources."""
    return lambda page, *sources: page.as_of(bus.position(), without_sources=sources or ["noisy"])


def contents(page):
    return [one.content for one in page.list(limit=None)]


@pytest.fixture
def differences(bus, silent):
    """Return how the page differs without the silenced source, by content."""

    def find(page):
        now = page.as_of(bus.position())
        return [((each.before or each.after).content, each.kind, each.fields) for each in now.diff(silent(page))]

    return find


def test_only_the_observations_of_a_silenced_source_are_absent(pages, silent, differences):
    noisy, other = pages
    said, kept = noisy.add("risk_alert", "said"), other.add("observation", "kept")
    quoted = other.add("observation", "quoted", source="noisy")
    past = silent(other)
    assert past.list() == past.active() == [kept]
    assert past.get(said.id) is past.get(quoted.id) is None
    assert differences(other) == [("said", "gone", ()), ("quoted", "gone", ())]
    assert contents(silent(other, "nobody")) == contents(other)
    assert contents(silent(other, "noisy", "other")) == []


def test_changes_by_a_silenced_source_are_undone(pages, silent, differences):
    noisy, other = pages
    one = other.add("observation", "one", dedupe_key="k")
    noisy.add("observation", "one", dedupe_key="k", times=4)
    two = other.add("observation", "two")
    noisy.resolve(two.id)
    noisy.update(one.id, content="else", tags=["wrong"])
    noisy.link(one.id, "goal")
    other.link(one.id, "other goal")
    past = silent(other)
    assert (past.get(one.id).content, past.get(one.id).occurrences, past.get(one.id).tags) == ("one", 1, [])
    assert (past.get(one.id).links, past.get(two.id)) == (["other goal"], two)
    assert [event.kind for event in past.history(one.id)] == ["added", "linked"]
    assert [name for name, kind, _ in differences(other) if kind == "changed"] == ["else", "two"]


def test_events_on_absent_observations_are_absent(pages, silent):
    noisy, other = pages
    said = noisy.add("observation", "said", dedupe_key="k")
    other.add("observation", "said", dedupe_key="k")
    other.claim(said.id)
    other.resolve(said.id)
    assert contents(silent(other)) == []
    with pytest.raises(NotFound):
        silent(other).history(said.id)


def test_dependents_on_all_pages_are_absent(pages, bus, silent):
    noisy, other = pages
    elsewhere = bus.page("elsewhere")
    said = noisy.add("observation", "said")
    first = elsewhere.add("observation", "first", evidence=[said.id])
    second = other.add("observation", "second", evidence=[first.id])
    kept = other.add("observation", "kept", dedupe_key="k")
    other.add("observation", "kept", dedupe_key="k", evidence=[second.id])
    assert contents(silent(other)) == ["kept"]
    assert silent(other).get(kept.id) == kept
    assert contents(silent(elsewhere)) == []


@pytest.mark.parametrize("chunk", [500, 3, 1])
def test_dependents_added_in_the_same_millisecond_are_absent(pages, clock, monkeypatch, chunk, bus, silent):
    noisy, _ = pages
    places = [bus.page(f"page-{number}") for number in range(8)]
    for _ in range(2):
        clock.advance("1s")  # the following events are of one millisecond, on several shards
        rests = noisy.add("observation", "said")
        for place in (*places, *reversed(places)):
            rests = place.add("observation", "rests", evidence=[rests.id])
    monkeypatch.setattr("scratchbus.eventlog.reader.CHUNK", chunk)
    for place in places:
        assert len(place.list()) == 4
        assert contents(silent(place)) == []


def test_events_caused_by_a_silenced_source_are_absent(pages, bus, silent):
    noisy, other = pages
    said, kept = noisy.add("observation", "said"), other.add("observation", "kept")
    with because(said.position):
        answer = bus.page("elsewhere").add("observation", "answer")
        other.archive(kept.id)
    with because(answer.position):
        other.add("observation", "answer to the answer")
    assert silent(other).list() == [kept]


def test_observations_displaced_by_a_silenced_source_are_present(pages, silent):
    noisy, other = pages
    held = [other.add("observation", f"{n}") for n in range(4)]
    rests = noisy.add("observation", "said")  # displaces the first
    other.resolve(held[1].id)
    other.add("observation", "rests on it", evidence=[rests.id])
    other.add("risk_alert", "does not")  # displaces another
    assert contents(other) == ["does not", "rests on it", "said", "3", "2", "1", "0"]
    past = silent(other)
    assert contents(past) == ["does not", "3", "2", "1", "0"]
    assert past.get(held[0].id) == held[0]
    assert past.get(held[2].id).reason_code == "displaced"


def test_events_that_the_script_prepends_to_an_absent_write_are_absent(pages, clock, silent):
    noisy, other = pages
    said = noisy.add("observation", "said")
    key = other.add("observation", "key", dedupe_key="k", ttl="1m")
    claimed = other.add("observation", "claimed")
    other.claim(claimed.id, ttl="1m")
    clock.advance("2m")
    other.add("observation", "takes the key", dedupe_key="k", evidence=[said.id])
    with because(said.position):
        other.claim(claimed.id)
    assert [event.kind for event in other.history(claimed.id)] == ["added", "claimed", "lapsed", "claimed"]
    past = silent(other)
    assert [event.kind for event in past.history(claimed.id)] == ["added", "claimed"]
    assert [event.kind for event in past.history(key.id)] == ["added"]
    assert past.get(key.id).status == "archived", "it expires all the same"


def test_refutations_by_a_silenced_source_are_undone(pages, bus, silent):
    noisy, other = pages
    one = other.add("observation", "one")
    rests = other.add("observation", "rests", evidence=[one.id])
    noisy.refute(one.id, reason="because I say so")
    bus.converse(sweep(bus.core))
    assert other.get(rests.id).status == "pending_review"
    past = silent(other)
    assert past.list() == [rests, one]


def test_doubts_after_the_refutation_of_an_absent_observation_are_undone(pages, bus, silent):
    noisy, other = pages
    ground = other.add("observation", "the ground", dedupe_key="ground")
    resting = bus.page("elsewhere").add("observation", "what rests on it", evidence=[ground.id])
    noise = noisy.add("observation", "noise")
    other.add("observation", "the ground", dedupe_key="ground", evidence=[noise.id])
    other.refute(noise.id, reason="not true")
    assert bus.page("elsewhere").get(resting.id).chain == [noise.id, ground.id]
    assert silent(other).get(ground.id) == ground
    assert silent(bus.page("elsewhere")).get(resting.id) == resting


def test_later_events_of_a_silenced_source_do_not_count(pages, bus):
    noisy, other = pages
    kept = other.add("observation", "kept")
    noisy.resolve(kept.id)
    then = bus.position()
    noisy.add("observation", "later")
    past = other.as_of(then, without_sources="noisy")
    assert past.list() == [kept]
    assert past.position == then.shards[kept.shard]


def test_later_events_of_other_sources_do_not_count(pages: tuple[Page, Page], bus: Bus) -> None:
    _, other = pages
    kept = other.add("observation", "kept")
    then = bus.position()
    other.update(kept.id, content="changed")
    other.add("observation", "later")
    assert other.as_of(then, without_sources="noisy").list() == [kept]


@pytest.mark.damages_the_log
def test_an_unreadable_event_damages_an_observation_unless_it_is_absent(
    pages: tuple[Page, Page], bus: Bus, silent: Callable[[Page], PastPage]
) -> None:
    noisy, other = pages
    said, kept = noisy.add("observation", "said"), other.add("observation", "kept")
    for name in "abcd":  # on several shards
        bus.page(name).add("observation", "elsewhere")
    for each in (said, kept):
        raw_append(bus, subject=each.id, kind="updated", event='{"v":1,"nonsense":true}')
    (damaged,) = silent(other).list()
    assert (damaged.id, damaged.content, damaged.damaged) == (kept.id, "kept", True)


def test_progress_is_reported(pages, buses, bus):
    _, other = pages
    other.add("observation", "x")
    buses[0].page("elsewhere").add("observation", "x")
    project(bus)
    reports = []
    other.as_of(bus.position(), without_sources="noisy", progress=lambda done, total: reports.append((done, total)))
    assert reports[-1] == (2, 2)


@pytest.mark.parametrize("given", [3, None, ["not a source!"], [3], ""])
def test_an_invalid_source_is_refused(page, given, bus):
    with pytest.raises(InvalidSource, match="without_sources"):
        page.as_of(bus.position(), without_sources=given)
