"""Bad input raises an error of its own class that says what to do, and appends nothing."""

import math
from datetime import date
from typing import Any

import pytest

from scratchbus import Bus, BusPosition, NewObservation, Position, new_id
from scratchbus.errors import (
    EngineUnreachable,
    InvalidField,
    InvalidId,
    InvalidInput,
    InvalidName,
    InvalidPosition,
    InvalidSource,
    InvalidTTL,
    InvalidURL,
    ReadOnlyField,
    RegistryError,
    ScratchbusError,
    SettingsError,
    TooLarge,
    UnknownField,
    UnknownType,
)
from tests.cases import case
from tests.inspection import log_length


def nested(levels):
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


# Arguments of add, the expected error, and a pattern of its message.
FIELDS: list[tuple[dict[str, Any], type[InvalidInput], str]] = [
    ({"type": "rumour"}, UnknownType, "unknown observation type 'rumour'"),
    ({"type": "risk_alrt"}, UnknownType, "did you mean 'risk_alert'"),
    ({"type": ""}, UnknownType, "unknown observation type ''"),
    ({"type": None}, InvalidField, "type: None is not a text"),
    ({"type": []}, InvalidField, "type: .* is not a text"),
    ({"content": ""}, InvalidField, "content: is empty"),
    ({"content": " \n\t"}, InvalidField, "content: is empty"),
    ({"content": None}, InvalidField, "content: None"),
    ({"content": 5}, InvalidField, "content: 5"),
    ({"content": "\ud800"}, InvalidField, "content: is not valid Unicode"),
    ({"content": "x" * 65537}, TooLarge, "content: 65537 bytes is over the limit of 65536"),
    ({"source": ""}, InvalidSource, "source: ''"),
    ({"source": "two words"}, InvalidSource, "source: 'two words'"),
    ({"source": "-dash"}, InvalidSource, "starting with a letter or digit"),
    ({"source": "x" * 129}, InvalidSource, "1–128"),
    ({"source": "line\n"}, InvalidSource, "source"),
    ({"source": "ä"}, InvalidSource, "source"),
    ({"confidence": 1.01}, InvalidField, "confidence: 1.01 is not a number from 0 to 1"),
    ({"confidence": -0.01}, InvalidField, "confidence"),
    ({"confidence": math.nan}, InvalidField, "confidence: nan"),
    ({"confidence": math.inf}, InvalidField, "confidence: inf"),
    ({"confidence": "high"}, InvalidField, "confidence: 'high'"),
    ({"colour": "red"}, UnknownField, "colour: unknown field; use one of: .*confidence"),
    ({"id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, UnknownField, "id: unknown field"),
    ({"tags": "text"}, InvalidField, "tags"),
    ({"tags": ["a", ""]}, InvalidField, "tags"),
    ({"tags": ["a\nb"]}, InvalidField, "tags: 'a\\\\nb' must be 1 to 256 printable characters"),
    ({"tags": ["x" * 257]}, InvalidField, "tags"),
    ({"tags": [5]}, InvalidField, "tags: 5"),
    ({"tags": 5}, InvalidField, "tags: 5 is not a list"),
    ({"confidence": True}, InvalidField, "confidence: True"),
    ({"ttl": True}, InvalidTTL, "ttl: True"),
    (
        {"tags": [f"t{n}" for n in range(33)]},
        TooLarge,
        "tags: 33 tags is over the limit of 32; give fewer, or raise max_tags",
    ),
    ({"owner": ""}, InvalidField, "owner"),
    ({"owner": "x" * 257}, InvalidField, "owner"),
    ({"context": []}, InvalidField, "context: \\[\\] is not a JSON object"),
    ({"context": 5}, InvalidField, "context: 5 is not a JSON object"),
    ({"context": {1: 2}}, InvalidField, "context"),
    ({"context": {"a": math.nan}}, InvalidField, "context: is not a JSON object"),
    ({"context": {"a": object()}}, InvalidField, "context: is not a JSON object"),
    ({"context": {"a": "\ud800"}}, InvalidField, "context: is not a JSON object"),
    ({"context": {"a": "x" * 65536}}, TooLarge, "context: .* over the limit of 65536"),
    ({"context": nested(100)}, TooLarge, "context: 101 levels is over the limit of 100"),
    ({"context": nested(5000)}, TooLarge, "context: 5001 levels is over the limit of 100; nest it less"),
    ({"metadata": "text"}, InvalidField, "metadata"),
    ({"metadata": {"a": {"b"}}}, InvalidField, "metadata: is not a JSON object"),
    ({"metadata": nested(200)}, TooLarge, "metadata: 201 levels"),
    ({"ttl": "soon"}, InvalidTTL, "ttl: 'soon' is not a valid duration here; use .*2h"),
    ({"ttl": 0}, InvalidTTL, "ttl: 0"),
    ({"ttl": -5}, InvalidTTL, "ttl"),
    ({"ttl": "101y"}, InvalidTTL, "ttl"),
    ({"ttl": "36501d"}, InvalidTTL, "ttl"),
    ({"expires_at": "someday"}, InvalidField, "expires_at"),
    ({"remind_at": ""}, InvalidField, "remind_at: '' is not a time"),
    ({"remind_at": 0}, InvalidField, "remind_at: 0 is not a time"),
    ({"remind_on": "risk_alert"}, InvalidField, "remind_on: 'risk_alert' is not a mapping of: type, status, tags"),
    ({"evidence": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, InvalidField, "evidence: .* is not a list"),
    ({"evidence": 5}, InvalidField, "evidence: 5 is not a list"),
    ({"remind_at": "1950-01-01T00:00:00Z"}, InvalidField, "remind_at: .* is before 1970"),
    ({"dedupe_key": ""}, InvalidField, "dedupe_key: must have 1 to 512 bytes, not 0"),
    ({"dedupe_key": "ä" * 257}, InvalidField, "dedupe_key: must have 1 to 512 bytes, not 514"),
    ({"dedupe_key": "\ud800"}, InvalidField, "dedupe_key: is not valid Unicode"),
    ({"times": 0}, InvalidField, "times: 0 is not a whole number from 1 to 1000000000"),
    ({"dedupe_key": 5}, InvalidField, "dedupe_key: 5 is not a text"),
    ({"times": "many"}, InvalidField, "times"),
    ({"times": 1.5}, InvalidField, "times"),
    ({"evidence": ["01ARZ3NDEKTSV4RRFFQ69G5FAV"]}, InvalidField, "evidence: 01ARZ3.* is not on any page of this bus"),
    ({"context": {"a": 10**308}}, TooLarge, "context: 309 digits of a whole number is over the limit of 308; write it"),
    ({"metadata": {"a": [-(10**4000)]}}, TooLarge, "metadata: 4001 digits of a whole number"),
    ({"metadata": {"a": 10**5000}}, InvalidField, "metadata: is not a JSON object"),
    ({"fence": True}, InvalidField, "fence: True is not a whole number from 1"),
    ({"fence": 2**53}, InvalidField, "fence: 9007199254740992 is not a whole number"),
    ({"times": 1_000_000_001}, InvalidField, "times: 1000000001 is not a whole number"),
    ({"evidence": ["nonsense"]}, InvalidId, "^evidence: 'nonsense' is not an observation id"),
    ({"evidence": ["01ARZ3NDEKTSV4RRFFQ69G5FAV"] * 1001}, TooLarge, "evidence: 1001 ids is over the limit of 1000"),
    ({"status": "resolved"}, InvalidField, "status: 'resolved' cannot be the first status; start with: active"),
    ({"status": ""}, InvalidField, "status: '' cannot be the first status; start with: active"),
    ({"expires_at": "2000-01-01T00:00:00Z"}, InvalidTTL, "expires_at: .* is in the past; give a later time"),
    ({"event_id": "two words"}, InvalidId, "event_id"),
    ({"fence": 0}, InvalidField, "fence: 0"),
    ({"remind_on": {"type": "risk_alrt"}}, UnknownType, "did you mean 'risk_alert'"),
    ({"remind_on": {"status": "done"}}, InvalidField, "remind_on.status: 'done' is not a status of any type; use one"),
    ({"remind_on": {"type": 5}}, InvalidField, "remind_on.type: 5"),
    ({"remind_on": {"tags": "x"}}, InvalidField, "^remind_on.tags: 'x' is not a list"),
    ({"remind_on": {"tags": [5]}}, InvalidField, "^remind_on.tags: 5 must be 1 to 256"),
    ({"confidence": 10**5000}, InvalidField, "confidence: a huge number"),
    ({"a\nb": 1}, UnknownField, r"'a\\nb': unknown field"),
]


def test_bad_field_is_refused_without_an_event(bus, page):
    for number, (given, error, says) in enumerate(FIELDS):
        fields = {"type": "observation", "content": "x"} | given
        with case((number, *given)):
            with pytest.raises(error, match=says) as refused:
                page.add(fields.pop("type"), fields.pop("content"), **fields)
            assert type(refused.value) is error
            assert isinstance(refused.value, InvalidInput)
            assert "\n" not in str(refused.value)
            assert log_length(bus) == 0


LONG = "x" * 100_000


LONG_FIELDS: list[dict[Any, Any]] = [
    {"type": LONG}, {"source": LONG}, {"owner": LONG}, {"tags": [LONG]}, {"tags": LONG}, {"confidence": LONG},
    {"context": LONG}, {"context": [LONG] * 9}, {"ttl": LONG}, {"expires_at": LONG}, {"status": LONG},
    {"times": LONG}, {"evidence": [LONG]}, {"evidence": LONG}, {"remind_on": LONG}, {"remind_on": {LONG: 1}},
    {"remind_at": LONG}, {"dedupe_key": LONG}, {"event_id": LONG}, {"fence": LONG}, {LONG: 1}, {"content": [LONG]},
]  # fmt: skip


def test_errors_shorten_long_values(page):
    for given in LONG_FIELDS:
        fields = {"type": "observation", "content": "x"} | given
        with case(next(iter(given))[:10]):
            with pytest.raises(InvalidInput) as refused:
                page.add(fields.pop("type"), fields.pop("content"), **fields)
            assert len(str(refused.value)) < 600


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({"context": 5}, "context: 5 is not a JSON object"),
    ({"tags": 5}, "tags: 5 is neither a text nor a list of texts"),
    ({"tags": [5]}, "tags: 5 is not a text"),
    ({"tags": "\ud800"}, "tags: is not valid Unicode"),
    ({"owner": 5}, "owner: 5 is not a text"),
    ({"owner": "\ud800"}, "owner: is not valid Unicode"),
    ({"source": ["a"]}, r"source: \['a'\] is not a text"),
    ({"text": 5}, "text: 5 is not a text"),
    ({"type": 5}, "type: 5 is not a text"),
    ({"status": 5}, "status: 5 is neither a text nor"),
    ({"status": [None]}, "status: None is not a text"),
    ({"since": 5}, "since: 5 is not a time"),
]


@pytest.mark.engines("memory")
def test_a_bad_filter_is_refused(page):
    for filters, says in FILTERS:
        with case(filters), pytest.raises(InvalidField, match=says):
            page.list(**filters)


@pytest.mark.engines("memory")
@pytest.mark.parametrize(
    ("filters", "error", "says"),
    [
        ({"kinds": ["bogus"]}, InvalidField, "kinds: 'bogus' is not a kind of event; known: added, "),
        ({"kinds": "status_chnged"}, InvalidField, "did you mean 'status_changed'"),
        ({"kinds": 5}, InvalidField, "kinds: 5 is neither a text nor a list of texts"),
        ({"pages": ["two words"]}, InvalidName, "'two words' is not a page name"),
        ({"pages": [5]}, InvalidField, "pages: 5 is not a text"),
        ({"types": [5]}, InvalidField, "types: 5 is not a text"),
        ({"after": 5}, InvalidPosition, "5 is neither a position nor a time"),
    ],
)
def test_bad_event_filter_is_refused(bus, filters, error, says):
    with pytest.raises(error, match=says):
        list(bus.events(**filters))


@pytest.mark.parametrize(
    "given",
    [
        {"times": 2.0},
        {"times": "2"},
        {"confidence": "0.5"},
        {"expires_at": 4_102_444_800},
        {"remind_at": date(2099, 1, 1)},
        {"owner": b"x"},
        {"tags": [b"x"]},
    ],
    ids=str,
)
def test_a_new_observation_converts_nothing_that_add_refuses(page, given):
    with pytest.raises(InvalidField):
        page.add("observation", "x", **given)
    with pytest.raises(InvalidField):
        NewObservation(type="observation", content="x", **given)


def test_bad_batch_error_names_the_item(bus, page):
    good = NewObservation(type="observation", content="good")
    for items, says in (
        ([good, {"type": "observation", "content": "x"}], r"items\[1\]: .* is not a NewObservation; write NewObs"),
        ("text", r"items\[0\]: 't' is not a NewObservation"),
        (5, "items: 5 is not a list of NewObservation"),
        (good, r"items: .* is not a list"),
    ):
        with pytest.raises(InvalidField, match=says):
            page.add_many(items)
    assert log_length(bus) == 0


@pytest.mark.parametrize("ms", [1.5, -1, "1", None, 10**15], ids=repr)
def test_position_that_no_log_can_have_is_refused(bus, page, ms):
    page.add("observation", "x")
    given = Position(ms, 1)
    with bus.view(page.name) as view:
        for read in (
            lambda: list(bus.events(given)),
            lambda: list(bus.events(BusPosition((given,) * len(bus.position().shards)))),
            lambda: bus.last_events(before=given),
            lambda: bus.declare_subscription("router", after=given),
            lambda: page.as_of(given),
            lambda: page.list(after=given),
            lambda: view.list(after=given),
            lambda: view.wait_for(given),
        ):
            with pytest.raises(InvalidPosition, match=f"ms={ms!r}, seq=1, shard=0\\) is not a position; its parts are"):
                read()
    assert bus.subscriptions() == []


def test_too_large_batch_error_says_to_split_it(bus, page):
    short, long = (NewObservation(type="observation", content=content) for content in ("x", "x" * 65_000))
    for items, says in (
        ([short] * 1001, "1001 observations is over the limit of 1000; split it into several batches"),
        ([long] * 140, r"9\d+ bytes is over the limit of 8388608; split it into several batches"),
    ):
        with pytest.raises(TooLarge, match=says):
            page.add_many(items)
    with pytest.raises(TooLarge, match="1001 observations is over the limit of 1000; clear them in several calls"):
        page.clear_resolved([new_id() for _ in range(1001)])
    assert log_length(bus) == 0


def test_blank_reason_error_names_the_reason(page):
    observation = page.add("observation", "x")
    with pytest.raises(InvalidField, match=r"reason: is empty; write a text$"):
        page.refute(observation.id, reason=" ")
    assert page.get(observation.id) == observation


def test_clear_resolved_takes_a_bare_id_and_refuses_other_values(page):
    observation = page.resolve(page.add("observation", "x").id)
    for ids in (5, None):
        with pytest.raises(InvalidField, match=f"ids: {ids} is not a list of observation ids"):
            page.clear_resolved(ids)
    page.clear_resolved(observation.id)
    assert page.get(observation.id) is None


def test_page_of_the_bus_is_read_only(bus, tmp_path):
    page = bus.page("_bus")
    new = NewObservation(type="observation", content="x", event_id="mine")
    for write in (
        lambda: page.add("observation", "x"),
        lambda: page.add_many([new, NewObservation(type="observation", content="y", event_id="other")]),
        lambda: page.claim("01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        lambda: page.clear_resolved(["01ARZ3NDEKTSV4RRFFQ69G5FAV"]),
    ):
        with pytest.raises(InvalidName, match="'_bus' is reserved for the bus's own events; write to another page"):
            write()
    assert log_length(bus) == 0
    file = tmp_path / "types.yaml"
    file.write_text(bus.types.text + "\n  ticket:\n")
    bus.push_types(file)
    assert page.list() == page.active() == []
    assert [event.kind for event in bus.events(pages="_bus")] == ["types_changed"]


def test_bad_batch_item_is_refused_without_an_event(bus, page):
    for given, error, _ in FIELDS[::4]:
        fields = {"type": "observation", "content": "x"} | given
        if "fence" not in given:
            with pytest.raises((error, InvalidField)):
                page.add_many([NewObservation(type="observation", content="good"), NewObservation(**fields)])
    assert log_length(bus) == 0


@pytest.mark.engines("memory")
@pytest.mark.parametrize("id", ["", "x", None, 5, "01ARZ3NDEKTSV4RRFFQ69G5FA", "01ARZ3NDEKTSV4RRFFQ69G5FAU!", "ü" * 26])
def test_a_bad_id_is_refused_everywhere(bus, page, id):
    for call in (
        lambda: page.get(id),
        lambda: page.update(id, content="x"),
        lambda: page.resolve(id),
        lambda: page.claim(id),
        lambda: page.release(id),
        lambda: page.link(id, "goal-1"),
        lambda: page.history(id),
        lambda: page.clear_resolved([id]),
    ):
        with pytest.raises(InvalidId, match="is not an observation id; ids are ULIDs of 26 characters"):
            call()
    assert log_length(bus) == 0


@pytest.mark.engines("memory")
@pytest.mark.parametrize("field", ["pages", "types", "kinds"])
def test_empty_filter_is_refused_at_once(bus, page, field):
    asking = [lambda: next(bus.events(**{field: []})), lambda: bus.subscribe("mailer", **{field: []})]
    if field != "kinds":
        asking.append(lambda: bus.work("repairs", **{field: []}))
    if field == "types":
        asking.append(lambda: page.claim_next(types=[]))
    for ask in asking:
        with pytest.raises(InvalidField, match=f"{field}: is empty; name at least one, or leave it out for all"):
            ask()


@pytest.mark.engines("memory")
@pytest.mark.parametrize("name", ["", "two words", "x" * 129, "ä", "a\n", "a#b", "{a}", None])
def test_a_bad_page_name_is_refused(bus, name):
    with pytest.raises(InvalidName, match="is not a page name; use 1–128 letters"):
        bus.page(name)


@pytest.mark.parametrize("name", ["", "two words", "a:b", "{a}", "x" * 129])
def test_a_bad_bus_name_is_refused(engine_url, name):
    with pytest.raises(SettingsError, match="bus"):
        Bus.connect(engine_url, bus=name)


@pytest.mark.engines("memory")
@pytest.mark.parametrize("by", ["", "two words", 5])
def test_bad_claimant_name_is_refused(bus, page, by):
    observation = page.add("observation", "x")
    for call in (page.claim, page.release):
        with pytest.raises(InvalidSource, match=r"by: .* is not a valid name; use .* a letter or digit$"):
            call(observation.id, by=by)
    assert log_length(bus) == 1


@pytest.mark.engines("memory")
@pytest.mark.parametrize("action", ["", " ", "x" * 257, "a\nb", None, 5])
def test_a_bad_action_is_refused(bus, page, action):
    observation = page.add("observation", "x")
    with pytest.raises(InvalidField, match="action"):
        page.link(observation.id, action)
    assert log_length(bus) == 1


def test_too_long_or_empty_reason_is_refused(bus, page):
    observation = page.add("observation", "x")
    with pytest.raises(TooLarge) as refused:
        page.resolve(observation.id, reason="x" * 4097)
    assert refused.value.field == "reason"
    with pytest.raises(InvalidField):
        page.resolve(observation.id, reason="")
    assert log_length(bus) == 1


BAD_URLS = [
    "http://example.org", "nonsense", "redis://host:port", "rediss//x", "://", "redis://two..dots", "redis://\ud800",
    f"redis://{64 * 'x'}:6379", "redis+cluster://two..dots,host", "redis", "redis:host", "unix:/path/to.sock",
]  # fmt: skip


@pytest.mark.parametrize("url", BAD_URLS, ids=ascii)
def test_bad_url_error_lists_the_valid_forms(url):
    with pytest.raises(InvalidURL, match=r"is not an engine URL.* write one of: redis://"):
        Bus.connect(url)


@pytest.mark.parametrize("url", ["unix://", "unix:///", "unix://?db=1"])
def test_a_url_without_a_socket_is_refused(url):
    with pytest.raises(InvalidURL, match=r"names no socket; write unix:///path/to\.sock"):
        Bus.connect(url)


@pytest.mark.parametrize("host", [64 * "x", "two..dots"])
def test_a_host_name_that_is_too_long_is_named(host):
    with pytest.raises(InvalidURL, match=rf": '{host}' is not a host name; its parts have 1 to 63 characters each;"):
        Bus.connect(f"redis://{host}:6379")


@pytest.mark.parametrize("path", ["~nobody-of-this-name", "~nobody-of-this-name/x", "/x\0y", "/x\ud800"], ids=ascii)
def test_a_directory_that_cannot_be_is_refused(path):
    with pytest.raises(InvalidURL, match="is not a directory's path"):
        Bus.connect(f"embedded:{path}")


@pytest.mark.parametrize("name", ["home", "archive_url", "observation_types", "relations"])
def test_a_setting_in_the_home_directory_of_nobody_is_refused(name):
    with pytest.raises(SettingsError, match=rf"{name}: .* has no known home directory; write the whole path"):
        Bus.connect("memory://settings", **{name: "~nobody-of-this-name/x"})


def test_missing_engine_raises_engine_unreachable(tmp_path):
    for url in (f"unix://{tmp_path}/no.sock", "redis://127.0.0.1:1"):
        with pytest.raises(EngineUnreachable, match=r"does not answer .*; start it, or check"):
            Bus.connect(url)


def test_errors_mask_the_password(tmp_path):
    with pytest.raises(ScratchbusError) as refused:
        Bus.connect("redis://someone:verysecret@127.0.0.1:1")
    assert "verysecret" not in str(refused.value)
    assert "***" in str(refused.value)


def test_connect_refuses_a_bad_types_file(engine_url, tmp_path):
    file = tmp_path / "types.yaml"
    file.write_text("types:\n  a:\n    priority: 500\n")
    with pytest.raises(RegistryError, match=r"types\.yaml:3:5: types\.a\.priority"):
        Bus.connect(engine_url, observation_types=file)


def test_errors_carry_field_size_and_limit(page):
    with pytest.raises(TooLarge) as too_large:
        page.add("observation", "x" * 70000)
    assert (too_large.value.field, too_large.value.size, too_large.value.limit) == ("content", 70000, 65536)
    with pytest.raises(ReadOnlyField) as read_only:
        page.update(page.add("observation", "x").id, source="other")
    assert read_only.value.field == "source"


def test_a_subject_that_is_not_valid_unicode_is_refused(page):
    for read in (page.history, lambda id: page.erase(id, reason="private")):
        with pytest.raises(InvalidId, match=r"id: .* is not an observation id"):
            read("note_\udcff")
