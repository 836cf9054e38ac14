from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from scratchbus import Bus, NewObservation
from scratchbus.engine.steps import Call, Step
from scratchbus.errors import InvalidId, NotFound
from scratchbus.readmodel.short_ids import whole_id
from tests.faults.interposing import Send, interposed


@pytest.fixture
def fake() -> Iterator[Bus]:
    with Bus.connect(f"memory://{uuid4()}", source="test", max_observations=100_000) as bus:
        yield bus


def _resolve(bus: Bus, text: str, page: str = "main") -> str:
    return bus.converse(whole_id(bus.core.log, page, text))


@pytest.mark.parametrize("length", [6, 8, 25])
def test_the_end_of_an_id_identifies_it_in_any_case(fake: Bus, length: int):
    id = fake.page().add("observation", "one").id
    assert _resolve(fake, id[-length:]) == id
    assert _resolve(fake, f" {id[-length:].lower()} ") == id


@pytest.mark.parametrize("length", [6, 25])
def test_a_long_s_is_not_read_as_an_s(fake: Bus, length: int):
    for text in ("\u017f" * length, "0" + "\u017f" * length):
        with pytest.raises(InvalidId):
            _resolve(fake, text)


@pytest.mark.real
def test_a_real_engine_finds_a_short_id_among_thousands(bus: Bus):
    items = [NewObservation(type="observation", content="x", status="pending_review") for _ in range(1_000)]
    with Bus.connect(bus.settings.url, source="test", max_observations=10_000, home=bus.settings.home) as roomy:
        ids = [each.id for _ in range(7) for each in roomy.page("suffix").add_many(items)]
    found = [bus.page("suffix").whole_id(id[-10:]) for id in (ids[0], ids[-1])]
    assert found == [ids[0], ids[-1]]


def test_a_short_id_is_found_although_a_restart_of_the_engine_cut_the_scan_short(fake: Bus):
    id = fake.page().add("observation", "one").id
    replies = {"INFO": b"run_id:before", "HSCAN": [b"0", []]}  # each of the first such command

    def around(call: Call, execute: Send) -> list[Any]:
        first = replies.pop(call.commands[0][0], None)
        return execute() if first is None else [first]

    with interposed(fake, around):
        assert _resolve(fake, id[-10:]) == id
    assert not replies


def test_a_whole_id_needs_no_query(fake: Bus):
    def result_without_query(conversation: Step[str]) -> str:
        try:
            asked = next(conversation)
        except StopIteration as done:
            return str(done.value)
        raise AssertionError(f"queried: {asked}")

    id = fake.page().add("observation", "one").id
    assert result_without_query(whole_id(fake.core.log, "main", id.lower())) == id


def test_the_short_id_of_a_cleared_observation_is_found(fake: Bus):
    page = fake.page()
    id = page.resolve(page.add("observation", "one").id).id
    page.clear_resolved([id])
    assert _resolve(fake, id[-8:]) == id


def test_a_short_id_of_another_page_is_not_found(fake: Bus):
    id = fake.page("other").add("observation", "one").id
    with pytest.raises(NotFound, match="no id on page 'main'"):
        _resolve(fake, id[-8:])


def test_the_beginning_of_an_id_identifies_it(fake: Bus):
    ids = [f"01M7YR8M{number}3MXGS4N0000ABCDEF" for number in range(2)]
    rows = tuple(value for id in ids for value in (id, "1"))
    fake.converse(_write(("HSET", fake.core.log.keys(0).heads("main"), *rows)))
    assert _resolve(fake, ids[1][:9].lower()) == ids[1]
    with pytest.raises(InvalidId, match=r"01M7YR8M matches several"):
        _resolve(fake, ids[1][:8])
    with pytest.raises(NotFound, match=r"ends or begins with 13MXGS4N"):
        _resolve(fake, ids[1][8:16])


def test_an_ambiguous_short_id_is_refused_with_its_matches(fake: Bus):
    ids = [f"01M7YR8MB3MXGS4N{number:04}ABCDEF" for number in range(7)]
    rows = tuple(value for id in ids for value in (id, "1"))
    fake.converse(_write(("HSET", fake.core.log.keys(0).heads("main"), *rows)))
    with pytest.raises(InvalidId, match=r"ABCDEF matches several") as refused:
        _resolve(fake, "abcdef")
    assert all(id in str(refused.value) for id in ids[:5])
    assert "and 2 more" in str(refused.value)
    assert _resolve(fake, "0003abcdef") == ids[3]


@pytest.mark.parametrize("text", ["", "ABCDE", "AB*DEF", "[A-Z]BC", "ABCDEU", "01M7YR8MB3MXGS4N6BSF10E4Q!", "é" * 8])
def test_an_invalid_short_id_is_refused(fake: Bus, text: str):
    fake.page().add("observation", "one")
    with pytest.raises(InvalidId):
        _resolve(fake, text)


def _write(command: tuple[str, ...]) -> Step[None]:
    yield Call(0, (command,), is_write=True)
