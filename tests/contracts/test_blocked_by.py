"""`blocked_by`: a blocked observation is neither active nor handed out until its blockers close."""

import threading
from datetime import timedelta

import pytest

from scratchbus import NewObservation
from scratchbus.errors import InvalidField, InvalidId, NotReady, TooLarge
from scratchbus.scheduling.expiry import sweep
from tests.engines import ALL, ONE
from tests.inspection import log_length, project
from tests.waiting import eventually

pytestmark = pytest.mark.engines(*ALL)


def contents(observations):
    return [each.content for each in observations]


@pytest.fixture
def wall(page):
    return page.add("observation", "build the wall")


@pytest.fixture
def roof(page, wall):
    return page.add("risk_alert", "put on the roof", tags=["a,b"], blocked_by=[wall.id])


def test_blocked_observation_is_inactive_until_all_blockers_close(page, wall, roof):
    paint = page.add("risk_alert", "paint", blocked_by=[roof.id, wall.id])
    assert (roof.blocked_by, paint.blocked_by) == ([wall.id], [roof.id, wall.id])
    assert contents(page.active()) == contents(page.ready()) == ["build the wall"]
    page.resolve(wall.id)
    assert contents(page.active()) == ["put on the roof"]
    page.resolve(roof.id)
    assert contents(page.active()) == contents(page.ready()) == ["paint"]
    assert page.get(paint.id).blocked_by == [roof.id, wall.id]  # kept, since one of them could be reopened


def test_blocked_observations_do_not_count_toward_the_limit(page, wall, roof):
    page.add("observation", "newer")
    assert contents(page.active(1)) == ["newer"]
    assert contents(page.active(2)) == contents(page.ready(2)) == ["newer", "build the wall"]


def test_blocking_does_not_depend_on_folding(bus, page, wall, roof):
    project(bus)
    assert contents(page.active(1)) == contents(page.active()) == ["build the wall"]
    page.resolve(wall.id)
    assert contents(page.active()) == ["put on the roof"]
    project(bus)
    assert contents(page.active()) == ["put on the roof"]


@pytest.mark.parametrize("end", ["archive", "resolve", "expire"])
def test_every_way_to_close_a_blocker_unblocks(page, clock, end):
    wall = page.add("observation", "wall", ttl="1m")
    page.add("risk_alert", "roof", blocked_by=[wall.id])
    if end == "expire":
        clock.advance(61)  # without a sweep
    else:
        getattr(page, end)(wall.id)
    assert contents(page.active()) == contents(page.ready()) == ["roof"]
    assert page.claim_next().observation.content == "roof"


def test_blocker_in_review_or_reopened_blocks(page, wall, roof):
    page.review(wall.id)
    assert page.active() == []
    page.resolve(wall.id)
    assert contents(page.active()) == ["put on the roof"]
    page.reopen(wall.id)
    assert contents(page.active()) == ["build the wall"]


def test_blocked_observation_is_neither_claimed_nor_handed_out(bus, page, wall, roof):
    length = log_length(bus)
    with pytest.raises(NotReady, match=f"{roof.id} is not ready: {wall.id} blocks it; `ready` lists"):
        page.claim(roof.id)
    assert log_length(bus) == length
    assert page.claim_next(types="risk_alert") is None
    assert page.claim_next().id == wall.id
    assert page.ready() == []
    assert page.claim_next() is None
    page.resolve(wall.id, fence=page.get(wall.id).claim.fence)
    assert page.claim_next(tags=["a,b"]).id == roof.id
    assert page.claim_next(tags=[wall.id]) is None  # an id is not a tag


def test_claim_of_a_blocked_observation_can_be_renewed(page, wall):
    roof = page.add("risk_alert", "roof")
    claim = page.claim(roof.id)
    page.update(roof.id, blocked_by=[wall.id], fence=claim.fence)
    assert page.claim(roof.id, fence=claim.fence).fence == claim.fence
    assert contents(page.active()) == ["build the wall"]
    page.release(roof.id)
    with pytest.raises(NotReady):
        page.claim(roof.id)


def test_update_replaces_blockers_and_tags_independently(page, wall, roof):
    floor = page.add("observation", "floor")
    assert page.update(roof.id, blocked_by=[floor.id]).blocked_by == [floor.id]
    page.resolve(wall.id)
    assert page.claim_next(tags="a,b") is None
    page.update(roof.id, tags=["c"])  # keeps the blockers
    assert page.claim_next(tags="c") is None
    assert page.update(roof.id, blocked_by=[]).blocked_by == []
    assert page.claim_next(tags="c").id == roof.id


def test_blocking_cycle_is_refused(bus, page, wall, roof):
    paint = page.add("observation", "paint", blocked_by=[roof.id])
    length = log_length(bus)
    for blocked, by in ((wall, wall), (wall, roof), (wall, paint)):
        with pytest.raises(InvalidField, match=f"blocked_by: {blocked.id} would be blocked by itself"):
            page.update(blocked.id, blocked_by=[by.id])
    assert log_length(bus) == length
    page.update(paint.id, blocked_by=[])
    page.update(wall.id, blocked_by=[paint.id])


@pytest.mark.engines(*ONE)
def test_one_of_two_updates_that_form_a_cycle_is_refused(connect, page):
    for n in range(20):
        ids = [page.add("observation", f"{n}").id for _ in "ab"]
        refused: list[str] = []
        barrier = threading.Barrier(2)

        def block(pages, id, by, refused=refused, barrier=barrier):
            barrier.wait()
            try:
                pages.update(id, blocked_by=[by])
            except InvalidField:
                refused.append(id)

        pages = [connect(name).page() for name in ("first", "second")]
        threads = [
            threading.Thread(target=block, args=(pages[0], ids[0], ids[1])),
            threading.Thread(target=block, args=(pages[1], ids[1], ids[0])),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 1


def test_bad_blockers_are_refused(bus, page, wall):
    elsewhere = bus.page("other").add("observation", "elsewhere")
    length = log_length(bus)
    for blocked_by, error, says in (
        (["01M7YS0X7YM47HSFZZZJC2DZ9D"], InvalidField, "is not on any page"),
        ([elsewhere.id], InvalidField, f"blocked_by: {elsewhere.id} is on page 'other'; pass ids of page 'main'"),
        (["x"], InvalidId, "^blocked_by: .x. is not an observation id"),
        (wall.id, InvalidField, "is not a list"),
        ([wall.id] * 101, TooLarge, "101"),
    ):
        with pytest.raises(error, match=says):
            page.add("observation", "x", blocked_by=blocked_by)
        with pytest.raises(error, match=says):
            page.update(wall.id, blocked_by=blocked_by)
    with pytest.raises(InvalidField, match="is on page 'other'"):
        page.add_many([NewObservation(type="observation", content="x", blocked_by=[elsewhere.id])])
    assert log_length(bus) == length


def test_closed_blocker_blocks_nothing(page, wall):
    page.resolve(wall.id)
    page.clear_resolved([wall.id])
    page.add("observation", "roof", blocked_by=[wall.id])
    assert contents(page.active()) == ["roof"]


def test_view_hides_blocked_observations_like_the_page(bus, page, clock, wall, roof):
    brief = page.add("observation", "brief", ttl="1m")
    page.add("reminder", "after", blocked_by=[brief.id])
    with bus.view() as view:
        assert view.active() == page.active()
        late = page.update(brief.id, blocked_by=[wall.id])
        view.wait_for(late)
        assert contents(view.active()) == contents(page.active()) == ["build the wall"]
        view.wait_for(page.resolve(wall.id))
        assert contents(view.active()) == contents(page.active()) == ["put on the roof", "brief"]


def test_as_of_hides_observations_blocked_at_that_time(page, wall, roof):
    before = page.get(roof.id).position
    page.resolve(wall.id)
    assert contents(page.as_of(before).active()) == ["build the wall"]
    assert contents(page.as_of(page.get(wall.id).position).active()) == ["put on the roof"]


@pytest.mark.engines(*ONE)
def test_worker_wakes_when_a_blocker_of_another_type_closes(bus, page, wall, roof):
    page.add("risk_alert", "before")
    seen = []

    def handle(job):
        seen.append(job.observation.content)
        job.resolve()

    with bus.work("roofers", types=["risk_alert"]) as jobs:
        thread = threading.Thread(target=jobs.run, args=(handle,))
        thread.start()
        eventually(lambda: seen == ["before"] and not jobs._agenda._bounds)  # idle
        page.resolve(wall.id)
        eventually(lambda: seen == ["before", "put on the roof"])
    thread.join()


def test_verify_accepts_heads_of_blocked_observations(bus, page, clock, wall, roof):
    page.update(roof.id, blocked_by=[wall.id, page.add("observation", "floor").id])
    page.update(roof.id, tags=["x"])
    clock.advance(timedelta(days=8).total_seconds())
    bus.converse(sweep(bus.core))
    assert bus.verify().findings == []
