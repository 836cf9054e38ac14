"""`get`, `list`, `count` and `active` of a page, a live view and a past page: results and order."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import combinations
from secrets import token_hex

import pytest

from scratchbus import NewObservation, Observation, Page
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.errors import InvalidField, InvalidId, InvalidPosition, NotFound, UnknownField, UnknownType
from tests.cases import case
from tests.engines import ONE, Engine
from tests.inspection import project
from tests.live_and_past_pages import SeenBack, SeenLive
from tests.past_pages import WAYS, only

NOBODY = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


pytestmark = pytest.mark.engines(*ONE)

REAL = ["page", "view", "undone", "folded"]
on_the_real_engine = pytest.mark.parametrize("way", REAL, indirect=True)
"""For tests with hundreds of events, which take several times as long on the fake engine."""


@pytest.fixture(params=["page of the fake engine", *REAL])
def way(request: pytest.FixtureRequest) -> str:
    """How observations are read. Only a page queries the engine; Python computes views and past pages."""
    return str(request.param)


@pytest.fixture
def engine(engine: Engine, way: str) -> Engine:
    return Engine(f"memory://{token_hex(6)}", shards=1, is_real=False) if way not in REAL else engine


@pytest.fixture
def reading(way: str) -> Iterator[Callable[[Page], Page | SeenLive | SeenBack]]:
    """Wrap a page so that it is read from the engine, through a view or as a past page."""
    with ExitStack() as stack:
        if way in WAYS:
            stack.enter_context(only(way))
            yield SeenBack
        else:
            yield lambda page: SeenLive(page, stack) if way == "view" else page


@pytest.fixture
def page(page, reading):
    return reading(page)


def contents(observations):
    return [one.content for one in observations]


def test_a_list_by_status_includes_what_never_expires(bus, page):
    page.add("observation", "forever", ttl="never")
    page.add("observation", "for a while")
    project(bus)
    assert contents(page.list(status="active")) == ["for a while", "forever"]
    assert page.list(status="archived") == []


def test_get_of_an_unknown_id_is_none(page):
    assert page.get(NOBODY) is None
    with pytest.raises(InvalidId, match="'nonsense' is not an observation id"):
        page.get("nonsense")


def test_get_accepts_a_lower_case_id(page):
    added = page.add("observation", "x")
    assert page.get(added.id.lower()) == added


def test_an_empty_page_lists_nothing(page):
    assert page.list() == page.active() == []


def test_active_is_by_priority_then_newest_first(page):
    for type in ("observation", "risk_alert", "pattern_detected"):
        for n in range(2):
            page.add(type, f"{type} {n}")
    assert contents(page.active()) == [
        "risk_alert 1", "risk_alert 0", "pattern_detected 1", "pattern_detected 0", "observation 1", "observation 0",
    ]  # fmt: skip
    assert contents(page.active(limit=3)) == ["risk_alert 1", "risk_alert 0", "pattern_detected 1"]


def test_active_omits_pending_closed_and_expired_observations(page, clock):
    page.review(page.add("risk_alert", "in review").id)
    page.resolve(page.add("risk_alert", "resolved").id)
    page.archive(page.add("risk_alert", "archived").id)
    page.add("risk_alert", "expired", ttl="1m")
    page.add("observation", "active")
    clock.advance("2m")
    assert contents(page.active()) == contents(page.active(limit=1)) == ["active"]


@pytest.mark.parametrize("is_folded", [True, False])
def test_active_limit_skips_many_observations_in_review(bus, page, is_folded):
    page.add("observation", "far behind")
    page.add_many([NewObservation(type="risk_alert", content=f"{n}", status="pending_review") for n in range(50)])
    if is_folded:
        project(bus)
    assert contents(page.active(limit=1)) == ["far behind"]


def test_active_limit_keeps_urgent_before_new(bus, page):
    for _ in range(2):
        page.add("risk_alert", "in review", status="pending_review")
    page.add("pattern_detected", "urgent")
    project(bus)
    page.add("observation", "new")
    assert contents(page.active(limit=1)) == ["urgent"]


def test_list_is_sorted_by_added_newest_first(page):
    added = [page.add("observation", f"{n}") for n in range(5)]
    page.update(added[0].id, tags=["touched"])
    page.reopen(page.resolve(added[1].id).id)
    assert contents(page.list()) == ["4", "3", "2", "1", "0"]


@on_the_real_engine
def test_list_stops_at_its_limit(connect, reading):
    page = reading(connect(max_observations=300).page())
    page.add_many([NewObservation(type="observation", content=f"{n}") for n in range(250)])
    assert contents(page.list(limit=2)) == ["249", "248"]
    assert len(page.list()) == 100
    assert contents(page.list(limit=None)) == [f"{n}" for n in reversed(range(250))]


def test_bad_limit_is_refused(page):
    for limit in (0, -1, 1.5, "3", True):
        for read in (page.list, page.active):
            with case(limit), pytest.raises(InvalidField, match="limit"):
                read(limit=limit)


@pytest.fixture
def mixed(page, clock):
    """Twelve observations, of which each filter matches some."""
    for n in range(12):
        page.add(
            "risk_alert" if n % 2 else "observation",
            f"story {n} of {'Émile' if n % 4 else 'nobody'}",
            source=f"tool-{n % 3}",
            owner="agent" if n % 3 else None,
            tags=[f"t{n % 2}", f"u{n % 4}"],
            context={"task": n % 3, "other": n},
            metadata={"score": n % 4, "other": n},
            confidence=n / 11,
        )
        clock.advance("1s")
    ids = [one.id for one in reversed(page.list())]
    page.resolve(ids[2])
    page.review(ids[3])
    page.archive(ids[4])
    return page


FILTERS = {
    "type": ("risk_alert", lambda one: one.type == "risk_alert"),
    "status": (["active", "resolved"], lambda one: one.status in ("active", "resolved")),
    "owner": ("agent", lambda one: one.owner == "agent"),
    "source": ("tool-1", lambda one: one.source == "tool-1"),
    "tags": (["t1", "u3"], lambda one: {"t1", "u3"} <= set(one.tags)),
    "text": ("éMILE", lambda one: "Émile" in one.content),
    "context": ({"task": 1}, lambda one: one.context["task"] == 1),
    "metadata": ({"score": 3}, lambda one: one.metadata["score"] == 3),
    "confidence": (5 / 11, lambda one: one.confidence >= 5 / 11),
}


@pytest.mark.parametrize("field", ["context", "metadata"])
def test_a_filter_by_values_distinguishes_what_json_distinguishes(page, field):
    values = [True, 1, False, 0, None, [True], [1], {"of": [0]}, {"of": [False]}]
    found = [page.add("observation", "x", **{field: {"n": value}}).id for value in values]
    page.add("observation", "without", **{field: {"m": 1}})
    for id, value in zip(found, values, strict=True):
        assert [one.id for one in page.list(**{field: {"n": value}})] == [id]
    assert [one.id for one in page.list(**{field: {"n": 1.0}})] == [found[1]]


@pytest.mark.parametrize("is_folded", [True, False])
def test_filters_match_alone_and_combined(bus, mixed, is_folded):
    if is_folded:
        project(bus)
    everything = mixed.list()
    assert len(everything) == 12
    for count in (1, 2, 3, len(FILTERS)):
        for names in combinations(FILTERS, count):
            found = mixed.list(**{name: FILTERS[name][0] for name in names})
            assert found == [one for one in everything if all(FILTERS[name][1](one) for name in names)], names


def test_count_equals_the_length_of_the_list(mixed):
    assert mixed.count() == len(mixed.list()) == 12
    for name, (value, _) in FILTERS.items():
        found = mixed.list(**{name: value})
        assert mixed.count(**{name: value}) == mixed.count({name: value}) == len(found), name
        assert mixed.count({name: value}, after=found[0]) == len(found) - 1
    assert mixed.count(limit=5) == 5
    assert mixed.count({"type": "risk_alert"}, tags="u3") == len(mixed.list(type="risk_alert", tags="u3"))
    with pytest.raises(UnknownField, match="limits: unknown field"):
        mixed.count(limits=5)
    with pytest.raises(UnknownField, match="kind: unknown field"):
        mixed.count({"kind": "risk_alert"})
    with pytest.raises(InvalidField, match="confidence: 7 is not a number from 0 to 1"):
        mixed.count(confidence=7)


def test_since_filters_by_created_at(mixed):
    everything = mixed.list()
    moment = everything[4].created_at
    assert mixed.list(since=moment) == everything[:5]
    assert mixed.list(since=moment.isoformat(), type="risk_alert") == [
        one for one in everything[:5] if one.type == "risk_alert"
    ]
    assert mixed.list(since=moment.replace(tzinfo=None)) == everything[:5]
    assert mixed.list(since=datetime(2200, 1, 1, tzinfo=UTC)) == []
    with pytest.raises(InvalidField, match="since: 'someday' is not a time"):
        mixed.list(since="someday")


def test_one_tag_or_status_needs_no_list(mixed):
    assert mixed.list(tags="t1") == mixed.list(tags=["t1"])
    assert mixed.list(status="resolved") == mixed.list(status=["resolved"]) != []


def test_filters_without_a_match_return_nothing(mixed):
    assert mixed.list(tags=["t0", "t1"]) == mixed.list(source='tool"') == mixed.list(type="reminder") == []


def test_unknown_type_or_status_is_refused(mixed):
    with pytest.raises(UnknownType, match="did you mean 'risk_alert'") as refused:
        mixed.list(type="risk_alrt")
    assert refused.value.nearest == "risk_alert"
    with pytest.raises(InvalidField, match="status: 'done' is not a status of any type; use one of: active, archived,"):
        mixed.list(status=["active", "done"])
    with pytest.raises(InvalidField, match="status: 'done'"):
        mixed.list(type="risk_alert", status="done")


def test_observations_of_a_removed_type_are_listed(connect, reading, tmp_path):
    bus, text = connect(), connect().types.text
    file = tmp_path / "types.yaml"
    file.write_text(text + "\n  ticket:\n    lifecycle:\n      statuses: {todo: open, done: closed}\n"
                    "      initial: [todo]\n      transitions: {todo: [done]}\n")  # fmt: skip
    bus.push_types(file)
    done = bus.page().resolve(bus.page().add("ticket", "x").id)
    late = connect()
    assert reading(late.page()).list(type="ticket", status="done") == [done]
    file.write_text(text)
    bus.push_types(file)
    page = reading(bus.page())
    assert page.list(type="ticket") == page.list(type="ticket", status="done") == [done]
    assert page.list(type="ticket", after=done) == []
    with pytest.raises(UnknownType):
        reading(bus.page("other")).list(type="ticket")


TICKETS = """types:
  observation: {}
  ticket:
    lifecycle:
      statuses: {todo: open, done: closed, void: closed}
      initial: [todo]
      transitions: {todo: [done, void], done: [archived], void: [archived]}
"""


def test_earlier_statuses_are_listed(connect, reading, way):
    bus = connect()
    bus.push_types(parse_registry(TICKETS, "types.yaml"))
    done = bus.page().update(bus.page().add("ticket", "x").id, status="done")
    bus.push_types(parse_registry("types: {observation: {}, ticket: {}}\n", "types.yaml"))
    for each in (bus, connect("late")):
        page = reading(each.page())
        assert page.list(status="done") == page.list(status=["active", "done"], type="ticket") == [done]
        assert page.list(status="done", type="observation") == []
        with pytest.raises(InvalidField, match="status: 'gone' is not a status of any type; use one of: active, arch"):
            page.list(status=["done", "gone"])
        if way != "view":  # which only knows the current types
            assert page.list(status="void") == reading(each.page("other")).list(status="done") == []


def test_statuses_that_only_an_observation_has_are_listed(connect, reading, tmp_path):
    file = tmp_path / "types.yaml"
    file.write_text(TICKETS)
    page = connect("other", observation_types=file).page()
    done = page.update(page.add("ticket", "x").id, status="done")
    assert reading(connect().page()).list(status="done") == [done]


@pytest.mark.engines(*ONE)
@pytest.mark.parametrize("filters", [{}, {"type": "risk_alert"}, {"status": "active"}, {"text": "story"}])
def test_list_pages_have_no_overlap_or_hole(mixed, filters):
    whole: list[Observation] = mixed.list(**filters)
    got: list[Observation] = []
    while some := mixed.list(limit=2, after=got[-1] if got else None, **filters):
        got += some
    assert got == whole


def test_after_accepts_an_observation_an_id_or_a_position(mixed):
    whole = mixed.list()
    for after in (whole[3], whole[3].id, whole[3].added):
        assert mixed.list(after=after) == whole[4:]
    with pytest.raises(NotFound, match="after"):
        mixed.list(after=NOBODY)
    with pytest.raises(InvalidId, match=r"^after: 'nonsense' is not an observation id"):
        mixed.list(after="nonsense")


def test_additions_do_not_shift_list_pages(mixed):
    first = mixed.list(limit=6)
    mixed.add("observation", "in between")
    assert [one.id for one in mixed.list(after=first[-1])] == [one.id for one in mixed.list()][7:]


def test_after_refuses_an_observation_of_another_page(bus, mixed):
    other = bus.page("elsewhere").add("observation", "x")
    for call in (mixed.list, mixed.count):
        with pytest.raises(NotFound, match=r"after: .* is on page 'elsewhere'"):
            call(after=other)


def test_after_refuses_a_position_on_another_shard(mixed):
    added = mixed.list()[3].added
    for call in (mixed.list, mixed.count):
        with pytest.raises(InvalidPosition, match=r"after: .* is not on shard"):
            call(after=added._replace(shard=added.shard + 1))


def test_after_accepts_a_cleared_observation(mixed):
    whole = mixed.list()
    resolved = next(one for one in whole if one.status == "resolved")
    index = whole.index(resolved)
    mixed.clear_resolved([resolved.id])
    for after in (resolved, resolved.added):
        assert mixed.list(after=after) == whole[index + 1 :]
    if isinstance(mixed, Page):  # views and past pages forget cleared ids
        assert mixed.list(after=resolved.id) == whole[index + 1 :]
    else:
        with pytest.raises(NotFound, match="after: there is no"):
            mixed.list(after=resolved.id)


@on_the_real_engine
def test_rare_matches_are_found(connect, reading):
    page = reading(connect(max_observations=1000).page())
    for start in range(0, 600, 300):
        page.add_many(
            [
                NewObservation(type="observation", content="x", tags=["rare"] if n == 0 else [], source=f"s-{n == 1}")
                for n in range(start, start + 300)
            ]
        )
    assert len(page.list(tags="rare")) == len(page.list(source="s-True")) == 1
    assert page.list(text="nowhere") == []


def test_expired_observation_reads_as_archived(page, clock):
    observation = page.add("observation", "x", ttl="1m")
    assert [one.status for one in page.list(status="active")] == ["active"]
    clock.advance("1m")
    assert page.list(status="active") == page.active() == []
    (over,) = page.list(status="archived")
    assert over == page.get(observation.id)
    assert (over.status_class, over.reason_code, over.version) == ("final", "expired", 1)


@on_the_real_engine
def test_pages_are_isolated(bus, reading):
    names = ("main", "a", "a:b", "user:42", "a/b", "A", ".", "-", "_", "x" * 128, "@me", "user:42:b")
    for name in names:
        bus.page(name).add("observation", name, tags=["b:c", "c", "b"], owner="b:c", dedupe_key="k")
    for name in names:
        page = reading(bus.page(name))
        for found in (page.list(), page.list(tags=["b:c", "c"]), page.list(owner="b:c"), page.active()):
            assert contents(found) == [name]
        assert page.get(found[0].id) == found[0]
        assert len(page.history(found[0].id)) == 1
    stranger = reading(bus.page("main")).list()[0]
    assert reading(bus.page("a")).get(stranger.id) is None
    with pytest.raises(NotFound):
        bus.page("a").resolve(stranger.id)


@on_the_real_engine
def test_list_keeps_one_order_across_types(bus, page):
    types = ("risk_alert", "observation", "observation", "reminder")
    batch = [NewObservation(type=types[number % 4], content=f"{number}") for number in range(96)]
    added = [one.id for one in page.add_many(batch)][::-1]
    for _ in range(2):
        for limit in (1, 7, 50):
            listed = found = page.list(limit=limit)
            while found and len(listed) < 60:
                found = page.list(limit=limit, after=found[-1])
                listed = listed + found
            assert len(listed) >= 60
            assert [one.id for one in listed] == added[: len(listed)]
        assert [one.id for one in page.list(limit=None)] == added
        project(bus)
