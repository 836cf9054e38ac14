"""Published types reach every open bus and cannot be removed while in use."""

from types import SimpleNamespace
from typing import Any

import pytest

from scratchbus import NewObservation
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.errors import InvalidField, RegistryError, TypeInUse, UnknownType, VersionConflict
from scratchbus.readmodel import registry_files, scope
from scratchbus.scheduling.expiry import sweep
from tests.inspection import log_length, send
from tests.waiting import eventually

ONE = "types:\n  build_failed:\n    priority: 80\n"
TWO = ONE + "  build_passed: {}\n"


@pytest.fixture
def push(tmp_path):
    """Publish a text as the registry of a bus."""

    def push(bus, text):
        file = tmp_path / "types.yaml"
        file.write_text(text)
        return bus.push_types(file)

    return push


def test_a_new_bus_has_the_shipped_types(bus):
    assert set(bus.types.types) == {
        "pending_confirmation", "contextual_insight", "risk_alert", "observation", "action_suggestion",
        "pattern_detected", "dependency", "reminder",
    }  # fmt: skip


def test_an_unknown_type_is_refused_with_the_nearest_name(bus, page):
    with pytest.raises(UnknownType, match="did you mean 'risk_alert'") as refused:
        page.add("risk_alrt", "x")
    assert (refused.value.type, refused.value.nearest) == ("risk_alrt", "risk_alert")
    assert "observation" in refused.value.known
    assert log_length(bus) == 0


def test_context_and_metadata_that_do_not_fit_the_schema_of_a_type_are_refused(bus, page, push):
    schemas = """types:
      build_failed:
        context: {required: [job], properties: {job: {type: string}}}
        metadata: {properties: {run: {type: integer}}}
    """
    push(bus, schemas)
    seen = page.add("build_failed", "x", context={"job": "main"}, metadata={"run": 7})
    length = log_length(bus)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"context": {}}, "^context: .*'job'.* .by the schema of type 'build_failed'"),
        ({"context": {"job": 5}}, "^context.job: 5 .* .by the schema of type 'build_failed'"),
        ({"context": {"job": "main"}, "metadata": {"run": "7"}}, "^metadata.run: '7' .* .by the schema of type"),
    ]
    for fields, what in refused:
        with pytest.raises(InvalidField, match=what):
            page.add("build_failed", "y", **fields)
        with pytest.raises(InvalidField, match=what):
            page.add_many([NewObservation(type="build_failed", content="y", **fields)])
        with pytest.raises(InvalidField, match=what):
            page.update(seen.id, **fields)
    assert log_length(bus) == length
    assert page.update(seen.id, context={"job": "next"}).context == {"job": "next"}


def test_an_open_bus_takes_a_new_type_without_a_restart(connect, push):
    publisher, other = connect("publisher"), connect("other")
    with pytest.raises(UnknownType):
        other.page().add("build_failed", "x")
    assert push(publisher, ONE) is True
    assert other.page().add("build_failed", "x").priority == 80


def test_a_new_client_has_the_published_types(connect, push):
    push(connect(), ONE)
    assert set(connect("later").types.types) == {"build_failed"}


def test_a_slow_read_of_the_file_does_not_replace_published_types(connect, push, monkeypatch):
    publisher, other = connect("publisher"), connect("other")
    push(publisher, ONE)
    vars(other.core).pop("registry", None)  # no thread has read the file yet
    read = registry_files.as_registry

    def reading(file):
        assert other.refresh_types() is True  # as another thread would
        return read(file)

    monkeypatch.setattr(scope, "registry_files", SimpleNamespace(as_registry=reading))
    assert set(other.types.types) == {"build_failed"}
    assert other.page().add("build_failed", "x").priority == 80


@pytest.mark.damages_the_log
def test_types_of_a_version_that_was_lost_give_way_to_those_published_again(connect, push):
    publisher, other = connect("publisher"), connect("other")
    push(publisher, ONE)
    assert other.refresh_types() is True
    for key in send(publisher, "KEYS", f"{publisher.core.log.keys(0).tag}*"):
        send(publisher, "DEL", key)  # as a failover that loses the events of the last moment
    push(publisher, TWO)
    assert other.refresh_types() is True
    assert other.types_version == 1
    assert set(other.types.types) == {"build_failed", "build_passed"}


def test_refresh_types_takes_changed_types(connect, push):
    publisher, other = connect("publisher"), connect("other")
    push(publisher, ONE)
    assert other.refresh_types() is True
    assert other.refresh_types() is False
    push(publisher, ONE.replace("80", "10"))
    assert other.refresh_types() is True
    assert other.page().add("build_failed", "x").priority == 10


def test_changed_types_are_taken_when_the_registry_is_old(connect, push, monkeypatch):
    publisher, other = connect("publisher"), connect("other")
    push(publisher, ONE)
    assert other.page().add("build_failed", "x").priority == 80
    push(publisher, ONE.replace("80", "10"))
    assert other.page().add("build_failed", "x").priority == 80
    monkeypatch.setattr("scratchbus.readmodel.scope.REGISTRY_AGE", 0)
    assert other.page().add("build_failed", "x").priority == 10


def test_a_change_of_types_records_its_author(connect, push):
    push(connect("admin"), ONE)
    (event,) = connect().events(kinds=["types_changed"])
    assert (event.by, event.page, event.subject, event.text) == ("admin", "_bus", "types", ONE)


def test_pushing_equal_types_changes_nothing(bus, push):
    push(bus, ONE)
    length = log_length(bus)
    assert push(bus, ONE) is False
    assert log_length(bus) == length


def test_a_type_in_use_cannot_be_removed(bus, push):
    push(bus, TWO)
    story = bus.page("somewhere").add("build_passed", "x")
    with pytest.raises(
        TypeInUse,
        match="'build_passed' has 1 open observation; resolve or archive it first, or keep it with its lifecycle",
    ) as refused:
        push(bus, ONE)
    assert (refused.value.type, refused.value.open) == ("build_passed", 1)
    bus.page("somewhere").resolve(story.id)
    assert push(bus, ONE) is True
    assert bus.page("somewhere").archive(story.id).status == "archived"


def test_a_type_of_expired_observations_can_be_removed_before_they_are_swept(bus, push):
    push(bus, TWO)
    page = bus.page()
    story = page.add("build_passed", "x", ttl="1ms")
    eventually(lambda: not page.active())
    assert push(bus, ONE) is True
    assert bus.converse(sweep(bus.core)) == 1
    assert page.get(story.id).reason_code == "expired"


def test_a_type_of_observations_that_never_expire_cannot_be_removed(bus, push):
    push(bus, TWO)
    bus.page().add("build_passed", "x", ttl="never")
    with pytest.raises(TypeInUse):
        push(bus, ONE)


def test_a_type_of_expired_observations_can_be_removed_although_the_clock_was_set_back(bus, push, clock):
    push(bus, TWO)
    page = bus.page()
    page.add("build_passed", "x", ttl="1m")
    clock.advance("2m")
    page.add("build_failed", "later")
    clock.set(clock.ms - 90_000)
    assert [each.content for each in page.active()] == ["later"]
    assert push(bus, ONE) is True


def test_clearing_asks_once_for_a_type_that_was_removed(bus, push, monkeypatch):
    push(bus, TWO)
    page, refreshes, refresh = bus.page(), [], scope.refresh_registry
    ids = [page.resolve(page.add("build_passed", "x").id).id for _ in range(3)]
    push(bus, ONE)

    def counted(core):
        refreshes.append(core)
        return refresh(core)

    monkeypatch.setattr(scope, "refresh_registry", counted)
    page.clear_resolved(ids)
    assert (page.list(), len(refreshes)) == ([], 1)


def test_a_lifecycle_in_use_cannot_be_changed(bus, push):
    push(bus, ONE)
    story = bus.page().add("build_failed", "x")
    other = ONE + (
        "    lifecycle:\n      statuses: {red: open, green: closed}\n      initial: [red]\n"
        "      transitions: {red: [green], green: [archived]}\n"
    )
    with pytest.raises(TypeInUse):
        push(bus, other)
    bus.page().archive(story.id)
    assert push(bus, other) is True
    assert bus.page().add("build_failed", "y").status == "red"


def test_an_invalid_file_publishes_nothing(bus, push, tmp_path):
    with pytest.raises(RegistryError, match=r"types\.yaml:3:\d+: .*colour"):
        push(bus, "types:\n  a:\n    colour: red\n")
    with pytest.raises(RegistryError, match="cannot be read"):
        bus.push_types(tmp_path / "nowhere.yaml")
    assert log_length(bus) == 0


def test_push_types_accepts_a_registry(bus):
    assert bus.push_types(parse_registry(ONE, "made up")) is True
    assert set(bus.types.types) == {"build_failed"}


def test_a_retry_of_types_that_were_in_force_does_not_replace_later_ones(bus, connect):
    one, two = parse_registry(ONE, "one"), parse_registry(TWO, "two")
    assert bus.push_types(one)
    assert not bus.push_types(one, event_id="push-1")
    assert connect("colleague").push_types(two)
    assert not bus.push_types(one, event_id="push-1")
    bus.refresh_types()
    assert bus.types.types.keys() == two.types.keys()
    assert bus.push_types(one, event_id="push-2")
    assert bus.push_types(one, event_id="push-2")


def test_push_types_refuses_an_unexpected_version(bus, connect):
    one, two = parse_registry(ONE, "one"), parse_registry(TWO, "two")
    assert bus.push_types(one, expected_version=0)
    with pytest.raises(VersionConflict) as refused:
        connect().push_types(two, expected_version=0)
    assert (refused.value.expected, refused.value.actual) == (0, 1)
    assert bus.push_types(two, expected_version=bus.types_version)
    with pytest.raises(InvalidField):
        bus.push_types(one, expected_version=-1)
