"""What led to what, as it was at a moment, and without some sources."""

import pytest

from scratchbus.errors import NotFound

pytestmark = pytest.mark.engines("memory", "embedded-4-shards")


def on(page, content, *evidence):
    return page.add("observation", content, evidence=[each.id for each in evidence])


def test_relations_of_the_past_are_those_that_were_read_then(bus):
    """Every step of a story on several pages is read when it happens, and once more when all is over."""
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
    told = []
    for step in steps:
        step()
        told.append((bus.position(), relations(one, two, ground, above, other)))
    assert len({str(found) for _, found in told}) == len(told), "each step tells something new"
    for position, found in told:
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


def test_what_had_not_happened_yet_is_not_found(bus):
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


def test_without_a_source_nothing_of_it_led_to_anything(connect):
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
