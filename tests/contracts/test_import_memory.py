"""A large export is checked and imported in bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator

import pytest
from ulid import ULID

from scratchbus.archive.importing import spill
from scratchbus.errors import InvalidExport
from tests.engines import NewBus

pytestmark = pytest.mark.real


def lines(count: int) -> Iterator[str]:
    """Yield an export of `count` observations whose last line is invalid."""
    for seq in range(1, count + 1):
        subject = str(ULID(seq.to_bytes(16, "big")))
        body = {"v": 1, "by": "tester", "content": f"observation {seq} " + "x" * 200, "dedupe_key": f"k{seq}"}
        yield json.dumps(
            {"shard": 0, "seq": seq, "ms": 1_700_000_000_000 + seq, "at": "", "id": f"e{seq}", "subject": subject,
             "page": f"page-{seq % 50}", "kind": "added", "type": "observation", "batch": "1/1", "prev": "",
             "event": body}
        )  # fmt: skip
    yield "{"


def peak_of(count: int, new_bus: NewBus) -> int:
    with new_bus() as copy:
        tracemalloc.start()
        try:
            with pytest.raises(InvalidExport, match=f"^line {count + 1}: "):
                copy.import_events(lines(count))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.slow
def test_four_times_as_many_lines_use_no_more_memory(monkeypatch: pytest.MonkeyPatch, new_bus: NewBus) -> None:
    monkeypatch.setattr(spill, "KEPT_BYTES", 256 * 1024)
    peak_of(100, new_bus)  # imports modules and fills caches
    # Even the small export exceeds KEPT_BYTES. What other threads allocate meanwhile only adds to a peak.
    small, large = (min(peak_of(count, new_bus) for _ in range(3)) for count in (250, 1_000))
    assert large < 1.3 * small


@pytest.mark.slow
def test_spilled_subjects_are_found_again(monkeypatch: pytest.MonkeyPatch, new_bus: NewBus) -> None:
    monkeypatch.setattr(spill, "KEPT_BYTES", 20_000)
    good = list(lines(300))[:-1]
    changes = []
    for number, line in enumerate(good, 1):
        event = json.loads(line)
        event |= {"seq": 300 + number, "kind": "updated", "id": f"u{number}", "prev": f"{event['ms']}-{event['seq']}"}
        event |= {"ms": 1_800_000_000_000, "event": {"v": 1, "by": "tester", "changes": {"owner": f"o{number}"}}}
        changes.append(json.dumps(event))
    with new_bus() as copy:
        assert copy.import_events([*good, *changes]) == 600
        assert copy.verify().findings == []
        found = copy.page("page-1").list()
        assert [one.owner for one in found] == [f"o{number}" for number in range(251, 0, -50)]
        assert {one.version for one in found} == {2}
