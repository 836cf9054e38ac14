"""No number that is accepted, or that the log holds, is too large for a reader."""

import json
from contextlib import suppress

import pytest

from scratchbus import NewObservation
from scratchbus.domain.values import LARGEST
from scratchbus.errors import InvalidField, NotFound
from scratchbus.log.keys import PageKeys
from tests.inspection import keys_of, log_length, project, raw_append, send

HUGE = 6 * 10**4299
"""Python writes it, and refuses to read or write what two of it come to."""

GHOST = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def read_everything(bus, page):
    """Read a page in every way there is; return what it lists."""
    found = page.list(limit=None)
    assert {each.id for each in page.active()} <= {each.id for each in found}
    for each in found:
        assert page.get(each.id) == each
        with suppress(NotFound):  # an entry that was written by hand has no head
            assert page.history(each.id)
    past = page.as_of(bus.position())
    assert past.list(limit=None) == found
    with bus.view(page.name) as view:
        assert view.list(limit=None) == found
    bus.status()
    bus.verify()
    bus.context.assemble(page=page.name, budget=100_000)
    bus.context.surface("what happened", page=page.name)
    list(bus.events())
    return found


def test_two_sightings_beyond_all_measure_are_refused(bus, page):
    for _ in range(2):
        with pytest.raises(InvalidField, match=r"times: .* is not a whole number from 1 to 1000000000"):
            page.add("observation", "x", dedupe_key="k", times=HUGE)
    assert log_length(bus) == 0
    assert read_everything(bus, page) == []


@pytest.mark.damages_the_log
def test_sightings_beyond_all_measure_that_the_log_holds_are_counted_up_to_the_largest_number(bus, page):
    page.add("observation", "other")
    body = json.dumps({"v": 1, "by": "x", "content": "attack", "times": 1})
    huge = body.replace('"times": 1', '"times": 6' + "0" * 4299).replace('{"v": 1, ', '{"v":1,')
    raw_append(bus, subject=GHOST, kind="added", type="observation", event=huge)
    raw_append(
        bus, subject=GHOST, kind="repeated", type="observation", event='{"v":1,"by":"x","times":6' + "0" * 4299 + "}"
    )
    for _ in range(2):
        assert [each.occurrences for each in read_everything(bus, page)] == [LARGEST, 1]
        project(bus)
    bus.rebuild()
    assert [each.occurrences for each in read_everything(bus, page)] == [LARGEST, 1]


def test_sightings_add_up_to_the_largest_number_and_no_further(bus, page):
    page.add("observation", "x", dedupe_key="k", times=1_000_000_000)
    assert page.add("observation", "x", dedupe_key="k", times=1_000_000_000).occurrences == 2_000_000_000
