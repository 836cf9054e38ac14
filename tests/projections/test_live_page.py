"""A page in memory, tested with plain events, without an engine or a clock."""

from math import inf

import pytest

from scratchbus.domain.events import Added, Claimed, Cleared, Erased, Linked, Released, StatusChanged, Updated
from scratchbus.domain.values import moment
from scratchbus.projections import page_in_memory
from scratchbus.projections.page_in_memory import PageInMemory
from scratchbus.projections.stored_observation import StoredObservation

START = 1_800_000_000_000
"""The time of the first event, in milliseconds."""


class Story:
    """A live page, and the events that happen on it, one a second."""

    def __init__(self):
        self.page = PageInMemory((), START)
        self.seq = 0

    def append(self, subject, event):
        self.seq += 1
        at = START + self.seq * 1000
        placed = event.placed(id=f"e{self.seq}", page="main", subject=subject, type="t", ms=at, seq=self.seq)
        self.last = placed
        turn, problem = self.page.evolve(placed)
        assert not problem
        return turn

    def add(self, subject, **more):
        return self.append(subject, Added(content="x", by="tool", **more))


def status(to):
    classes = {"active": "open", "pending_review": "open", "resolved": "closed", "archived": "final"}
    return StatusChanged(status=to, status_class=classes[to], reason_code="changed", by="tool")


def ids(observations):
    return [one.id for one in observations]


def everything(page):
    kinds = [[], *([("tag", tag)] for tag in "ab"), [("type", "t")], [("owner", "me")]]
    return [page.active(None), *([*map(page.as_observation, page.walk(names, None))] for names in kinds)]


def as_stored(observation):
    return StoredObservation.of(observation)


@pytest.mark.parametrize("form", [lambda observation: observation, as_stored], ids=["models", "as stored"])
def test_a_page_built_at_once_equals_one_built_from_events(form):
    story = Story()
    for n, subject in enumerate("ABCDEF"):
        story.add(subject, tags=["a"] if n % 2 else ["a", "b"], priority=50 + n % 3, owner="me" if n > 3 else None,
                  ttl=60_000 * (n + 1))  # fmt: skip
    story.append("B", status("pending_review"))
    story.append("C", status("resolved"))
    story.append("D", Claimed(holder="me", ttl=5_000, by="tool"))
    story.append("E", Updated(changes={"tags": ["b"], "owner": None}, by="tool"))
    walked = list(story.page.walk([], None))
    built = PageInMemory(map(form, walked), START)
    assert everything(built) == everything(story.page)
    for now in (START + 20_000, START + 130_000, START + 10_000_000):
        built.advance(now)
        story.page.advance(now)
        assert everything(built) == everything(story.page)
        assert everything(PageInMemory(map(form, walked), now)) == everything(story.page)


@pytest.mark.parametrize("form", [lambda observation: observation, as_stored], ids=["models", "as stored"])
def test_initial_observations_evolve_like_added_ones(form):
    story = Story()
    for subject in "ABC":
        story.add(subject, tags=["a"], ttl=60_000)
    built = PageInMemory(map(form, story.page.walk([], None)), START)
    assert built.get("C") is built.get("C") is built.active(1)[0]
    before, after = story.append("A", Updated(changes={"tags": ["b"]}, by="tool"))
    assert built.evolve(story.last) == ((before, after), "")
    assert built.evolve(story.last) == ((after, after), "")  # already folded
    assert everything(built) == everything(story.page)


def test_indexes_built_late_equal_those_kept_up_to_date():
    kept, late = Story(), Story()
    assert everything(kept.page) == [[]] * 6
    for story in (kept, late):
        for subject in "ABCDE":
            story.add(subject, tags=["a"], owner="me", ttl=60_000)
        story.append("A", Updated(changes={"tags": ["b"], "owner": None}, by="tool"))
        story.append("B", status("resolved"))
        story.append("B", Cleared(by="tool"))
        story.append("C", status("archived"))
        story.page.advance(START + 61_000)
    assert everything(late.page) == everything(kept.page)
    assert ids(late.page.walk([("tag", "a")], None)) == ["E", "D", "C"]
    assert (late.page.has(("tag", "b")), late.page.has(("tag", "c"))) == (True, False)


def test_active_is_by_priority_then_newest_first():
    story = Story()
    for subject, priority in (("A", 50), ("B", 90), ("C", 50), ("D", 90)):
        story.add(subject, priority=priority)
    assert ids(story.page.active(None)) == ["D", "B", "C", "A"]
    story.append("D", status("pending_review"))
    assert ids(story.page.active(2)) == ["B", "C"]
    story.append("D", status("active"))
    assert ids(story.page.active(2)) == ["D", "B"]


def test_an_observation_comes_back_in_its_order():
    story = Story()
    for subject in "ABC":
        story.add(subject, tags=["a"])
    assert ids(story.page.walk([("tag", "a")], None)) == ["C", "B", "A"]
    story.append("A", status("pending_review"))
    story.append("A", status("active"))
    story.append("A", Updated(changes={"tags": []}, by="tool"))
    story.append("A", Updated(changes={"tags": ["a"]}, by="tool"))
    assert ids(story.page.active(None)) == ["C", "B", "A"]
    assert ids(story.page.walk([("tag", "a")], None)) == ["C", "B", "A"]


def test_a_walk_is_newest_first_and_starts_below_a_position():
    story = Story()
    for n in range(6):
        story.add(f"{n}", tags=["a", "b"] if n % 3 == 0 else ["a"])
    assert ids(story.page.walk([("tag", "a"), ("tag", "b")], None)) == ["3", "0"]
    assert ids(story.page.walk([("tag", "a")], 4)) == ["2", "1", "0"]
    assert ids(story.page.walk([], None)) == ["5", "4", "3", "2", "1", "0"]
    assert ids(story.page.walk([("tag", "none")], None)) == []


def test_claims_and_lives_end_exactly_at_their_millisecond():
    story = Story()
    story.add("A", ttl=60_000)
    story.append("A", Claimed(holder="me", ttl=10_000, by="tool"))
    over, ends = START + 2_000 + 10_000, START + 1_000 + 60_000
    assert story.page.next_ms == over
    story.page.advance(over - 1)
    assert story.page.get("A").claim is not None
    story.page.advance(over)
    assert story.page.get("A").claim is None
    assert story.page.next_ms == ends
    story.page.advance(ends)
    assert (story.page.get("A").status, story.page.active(None)) == ("archived", [])
    assert story.page.next_ms == inf


def test_a_backoff_ends_exactly_at_its_millisecond():
    story = Story()
    story.add("A")
    story.append("A", Claimed(holder="me", ttl=60_000, by="tool"))
    story.append("A", Released(backoff=10_000, by="tool"))
    over = START + 3_000 + 10_000
    assert story.page.next_ms == over
    story.page.advance(over - 1)
    assert story.page.get("A").not_before == moment(over)
    story.page.advance(over)
    assert story.page.get("A").not_before is None


def test_an_expiry_between_milliseconds_is_rounded_up():
    story = Story()
    story.add("A", expires_at=moment(START + 60_000).replace(microsecond=500))
    assert story.page.next_ms == START + 60_001
    story.page.advance(START + 60_000)
    assert story.page.get("A").is_open


def test_a_prolonged_observation_ignores_its_old_expiry():
    story = Story()
    story.add("A", ttl=60_000)
    story.append("A", Updated(changes={"expires_at": moment(START + 120_000)}, by="tool"))
    story.page.advance(START + 61_000)
    assert ids(story.page.active(None)) == ["A"]
    assert story.page.next_ms == START + 120_000


def test_a_cleared_observation_is_in_no_index():
    story = Story()
    story.add("A", tags=["a"], owner="me", ttl=60_000)
    story.append("A", status("resolved"))
    before, after = story.append("A", Cleared(by="tool"))
    assert (before.id, after) == ("A", None)
    assert story.page.get("A") is None
    assert everything(story.page) == [[]] * 6
    assert not story.page.has(("tag", "a"))
    story.page.advance(START + 10_000_000)
    assert everything(story.page) == [[]] * 6


def test_an_erased_observation_is_in_no_index():
    story = Story()
    story.add("A", tags=["a"], owner="me", ttl=60_000)
    before, after = story.append("A", Erased(reason="asked for", positions=[], version=2, by="tool"))
    assert (before.id, after) == ("A", None)
    assert story.page.get("A") is None
    assert everything(story.page) == [[]] * 6


def test_an_already_folded_event_changes_nothing():
    story = Story()
    story.add("A")
    before, after = story.append("A", Linked(action="goal-1", by="tool"))
    assert before.links == []
    story.seq = 1
    assert story.append("A", Linked(action="goal-2", by="tool")) == (after, after)
    assert story.page.get("A") is after


def test_poison_marks_its_observation_as_damaged():
    story = Story()
    story.add("A")
    before, after = story.page.damage("A", START + 5_000, 5)
    assert (before.damaged, after.damaged, after.version, after.position.seq) == (False, True, 2, 5)
    assert story.page.damage("B", START + 6_000, 6) == (None, None)
    lost = Linked(action="goal-1", by="tool").placed(id="e", page="main", subject="B", ms=START, seq=7)
    assert story.page.evolve(lost) == ((None, None), "FoldError: linked of an observation that is not on the page")


def test_stale_alarms_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(page_in_memory, "_MAX_STALE", 10)
    story = Story()
    story.add("A", ttl=86_400_000)
    for _ in range(200):
        story.append("A", Claimed(holder="me", ttl=3_600_000, by="tool"))
    assert len(story.page._alarms) <= 12
    story.page.advance(START + 200_000 + 3_600_000 - 1)
    assert story.page.get("A").claim is not None


def test_old_final_observations_are_dropped_from_every_index():
    story = Story()
    story.page = PageInMemory((), START, 60_000)
    for subject in "ABC":
        story.add(subject, tags=["a"], ttl=10_000 if subject == "C" else None)
    story.append("A", status("archived"))
    story.append("B", status("resolved"))
    story.page.advance(START + 63_999)
    assert ids(story.page.walk([("tag", "a")], None)) == ["C", "B", "A"]
    story.page.advance(START + 64_000)
    assert ids(story.page.walk([("tag", "a")], None)) == ["C", "B"]
    assert (len(story.page), story.page.get("A"), story.page.get("B").status) == (2, None, "resolved")
    assert story.page.get("C").status == "archived"  # expired, but not yet swept
    story.page.evolve(Linked(action="goal", by="tool").placed(subject="A", ms=START + 70_000, seq=9))
    assert len(story.page) == 2
