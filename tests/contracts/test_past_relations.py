"""Evidence, consequences and actions of a past moment, and without some sources."""

import pytest

from scratchbus.errors import NotFound
from tests.waiting import eventually

pytestmark = pytest.mark.engines("memory", "embedded-4-shards")


def on(page, content, *evidence):
    return page.add("observation", content, evidence=[each.id for each in evidence])


def test_past_relations_equal_those_read_at_the_time(bus):
    """Read the relations after each step of a story on several pages; at the end, read each moment again."""
    one, two, three = (bus.page(name) for name in ("one", "two", "three"))
    ground, other = on(one, "ground"), one.add("observation", "other", dedupe_key="k")
    above = on(two, "above", ground)

    steps = [
        lambda: on(three, "top", above),
        lambda: bus.context.assemble(page="one", session="s1", record=True),
        lambda: two.link(above.id, "goal"),
        lambda: one.add("observation", "other", dedupe_key="k", evidence=[ground.id]),
        lambda: one.link(other.id, "goal-2"),
        lambda: one.refute(ground.id, reason="wrong"),
        lambda: three.link(three.list()[0].id, "goal"),
        lambda: two.link(above.id, "goal-3"),
        lambda: one.archive(other.id),
    ]
    seen = []
    for step in steps:
        step()
        seen.append((bus.position(), relations(one, two, ground, above, other)))
    assert len({str(found) for _, found in seen}) == len(seen), "each step must change the relations"
    for position, found in seen:
        then = str(position)
        assert relations(one.as_of(then), two.as_of(then), ground, above, other) == found


def relations(one, two, ground, above, other):
    return (
        one.consequences(ground.id),
        one.exposure(ground.id),
        one.exposure(other.id),
        one.evidence(other.id),
        two.evidence(above.id),
        motives(two, "goal"),
        motives(one, "goal-2"),
        motives(two, "goal-3"),
    )


def motives(page, action):
    try:
        return page.trace(action)
    except NotFound:
        return None


def test_later_relations_are_not_found_in_the_past(bus):
    page = bus.page()
    early = on(page, "early")
    before = bus.position()
    late = on(page, "late", early)
    page.link(late.id, "goal")
    then = page.as_of(before)
    assert then.consequences(early.id).observations.keys() == {early.id}
    with pytest.raises(NotFound):
        then.trace("goal")
    for read in (then.consequences, then.evidence, then.exposure):
        with pytest.raises(NotFound):
            read(late.id)


def test_page_of_a_relative_time_keeps_its_moment_for_other_pages(bus):
    page, far = bus.page(), bus.page("far")
    ground = on(far, "before")
    above = on(page, "rests on it", ground)
    eventually(lambda: page.as_of("1ms ago").get(above.id))
    then = page.as_of("1ms ago")
    far.update(ground.id, content="after")
    eventually(lambda: far.as_of("1ms ago").get(ground.id).content == "after")
    assert then.evidence(above.id)[ground.id].content == "before"
    assert then.consequences(above.id).observations.keys() == {above.id}


def test_as_of_without_a_source_omits_its_relations(connect):
    seen, guessed = connect("eyes").page(), connect("rumour").page()
    ground = on(seen, "ground")
    rumour = on(guessed, "rumour", ground)
    on(connect("eyes").page("far"), "rests on a rumour too", ground, rumour)
    guessed.link(ground.id, "panic")
    calm = on(seen, "calm", ground)
    seen.link(calm.id, "goal")
    without = seen.as_of(calm.added, ["rumour"])
    assert without.consequences(ground.id).observations.keys() == {ground.id, calm.id}
    assert without.consequences(ground.id).actions == []
    later = seen.as_of(seen.get(calm.id).position, ["rumour"])
    assert later.consequences(ground.id).actions == ["goal"]
    assert [motive.id for motive in later.trace("goal").motives] == [calm.id]
    with pytest.raises(NotFound):
        later.trace("panic")


def test_actions_of_an_observation_that_did_not_rest_on_it_are_absent(connect):
    seen, guessed = connect("eyes").page(), connect("rumour").page()
    ground = on(seen, "ground")
    other = seen.add("observation", "other", dedupe_key="k")
    guessed.add("observation", "other", dedupe_key="k", evidence=[ground.id])
    linked = seen.link(other.id, "goal")
    assert seen.as_of(linked.position).consequences(ground.id).actions == ["goal"]
    without = seen.as_of(linked.position, ["rumour"]).consequences(ground.id)
    assert (without.observations.keys(), without.actions) == ({ground.id}, [])


def test_observations_that_rest_on_each_other_are_consequences_of_each_other(bus):
    page = bus.page()
    one = page.add("observation", "one", dedupe_key="k")
    two = on(page, "two", one)
    page.add("observation", "one", dedupe_key="k", evidence=[two.id])
    assert page.as_of(bus.position()).consequences(one.id).observations.keys() == {one.id, two.id}
