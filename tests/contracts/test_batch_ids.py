"""The event ids of a batch."""

import pytest

from scratchbus import NewObservation
from scratchbus.errors import InvalidField
from tests.engines import ALL
from tests.inspection import log_length

pytestmark = pytest.mark.engines(*ALL)


def test_duplicate_event_ids_in_a_batch_are_refused(bus, page):
    batch = [NewObservation(type="observation", content=text, event_id="same") for text in "ab"]
    with pytest.raises(InvalidField, match="event_id"):
        page.add_many(batch)
    assert log_length(bus) == 0
