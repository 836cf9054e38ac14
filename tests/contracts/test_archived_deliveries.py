"""Subscriptions whose events, or those they need, have moved to an archive that the consumer cannot read."""

import pytest

from scratchbus.archive.stores import DirectoryStore
from scratchbus.errors import ArchiveDamaged, ArchiveUnavailable, PositionLost
from tests.contracts.test_pull import contents, fill, positions
from tests.engines import ONE
from tests.inspection import archive, project

pytestmark = pytest.mark.engines(*ONE)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "archive"


@pytest.fixture(autouse=True)
def archiver(connect, directory):
    """A bus that moves events to the archive; it is opened first, so that the end of a test can read them."""
    return connect("archiver", archive_url=directory, retain="1ms", retain_events=5, archive_segment=4)


@pytest.fixture
def archived(archiver, bus, page, clock):
    """Return a function that delivers dead letters again, moves their events to the archive, and returns the batch."""

    def deliver(count):
        bus.declare_subscription("router", max_attempts=1, retry_delay=0)
        fill(page, 20)
        batch = bus.pull("router", max=30)
        for position in positions(batch)[:count]:
            bus.nack("router", batch.token, position, "bad")
        bus.ack("router", batch.token, positions(batch)[count:])
        bus.declare_subscription("router", max_attempts=2, retry_delay=0)
        bus.retry_dead_letters("router")
        again = bus.pull("router")
        assert contents(again) == [str(n) for n in range(count)]
        clock.advance("2s")
        project(archiver)
        assert sum(each.trimmed for each in archive(archiver)) > count
        return again

    return deliver


def dead(bus):
    return [(each.position, each.attempts) for each in bus.dead_letters("router")]


def archived_observation(archiver, clock):
    """Add an observation with a tag, move its event to the archive, and return it."""
    tagged = archiver.page().add("observation", "old", tags=["a"])
    fill(archiver.page(), 20)
    clock.advance("2s")
    project(archiver)
    assert sum(each.trimmed for each in archive(archiver)) > 0
    return tagged


def test_an_archived_dead_letter_whose_lease_ended_becomes_one_again(bus, page, archived, clock):
    again = archived(2)
    page.add("observation", "new")
    clock.advance("1h")
    assert contents(bus.pull("router", wait="1s")) == ["new"]
    assert dead(bus) == [(str(position), 1) for position in positions(again)]
    assert all("set archive_url" in each.reason for each in bus.dead_letters("router"))
    with pytest.raises(PositionLost, match="set archive_url"):
        bus.retry_dead_letters("router")


def test_an_archived_dead_letter_that_failed_becomes_one_again(bus, page, archived):
    again = archived(1)
    bus.nack("router", again.token, positions(again)[0], "bad")
    page.add("observation", "new")
    assert contents(bus.pull("router", wait="1s")) == ["new"]
    assert dead(bus) == [(str(positions(again)[0]), 1)]


def test_the_last_failure_of_an_archived_dead_letter_makes_one_again(bus, archived):
    again = archived(1)
    bus.declare_subscription("router", max_attempts=1, retry_delay=0)
    for _ in range(2):
        bus.nack("router", again.token, positions(again)[0], "no better")
    assert [(each.reason, each.attempts) for each in bus.dead_letters("router")] == [("no better", 1)]


def test_a_new_event_that_failed_is_delivered_again_if_only_others_can_read_it(
    archiver, bus, page, connect, directory, clock
):
    archived_observation(archiver, clock)
    bus.declare_subscription("router", max_attempts=1, retry_delay=0)
    reader = connect("reader", archive_url=directory)
    first = reader.pull("router", max=1)
    for _ in range(2):
        bus.nack("router", first.token, positions(first)[0], "bad")
    assert dead(bus) == []
    again = reader.pull("router", max=1)
    assert [(each.position, each.attempt) for each in again.deliveries] == [(positions(first)[0], 1)]
    reader.nack("router", again.token, positions(again)[0], "bad")
    assert dead(bus) == [(str(positions(first)[0]), 1)]


def test_an_erased_dead_letter_whose_lease_ended_does_not_come_back(bus, page, archiver, archived, clock):
    again = archived(1)
    archiver.page().erase(again.deliveries[0].event.subject, reason="private")
    page.add("observation", "new")
    clock.advance("1h")
    assert [each.event.kind for each in bus.pull("router", wait="1s").deliveries] == ["erased", "added"]
    assert dead(bus) == []


@pytest.mark.damages_the_log
def test_a_damaged_archive_holds_up_no_other_events(bus, connect, page, archived, directory, clock):
    archived(1)
    for file in directory.rglob("*"):
        if file.is_file():
            file.write_bytes(b"damaged")
    page.add("observation", "new")
    clock.advance("1h")
    reader = connect("reader", archive_url=directory)
    assert contents(reader.pull("router", wait="1s")) == ["new"]
    assert len(dead(bus)) == 1


@pytest.mark.damages_the_log
def test_a_subscription_with_tags_uses_the_current_ones_if_the_archive_is_damaged(
    archiver, connect, directory, clock, capfd
):
    page, tagged = archiver.page(), archived_observation(archiver, clock)
    end = archiver.position()
    page.link(tagged.id, "now")
    for file in directory.rglob("*"):
        if file.is_file():
            file.write_bytes(b"damaged")
    reader = connect("reader", archive_url=directory)
    with reader.subscribe("router", tags=["a"], after=end) as deliveries:
        assert next(deliveries).event.action == "now"
    assert "the current tags are used" in capfd.readouterr().err


def test_a_cleared_observation_has_no_tags_if_the_archive_is_damaged(archiver, connect, directory, clock):
    page, tagged = archiver.page(), archived_observation(archiver, clock)
    end = archiver.position()
    page.resolve(tagged.id)
    page.clear_resolved([tagged.id])
    page.add("observation", "next", tags=["a"])
    for file in directory.rglob("*"):
        if file.is_file():
            file.write_bytes(b"damaged")
    reader = connect("reader", archive_url=directory)
    with reader.subscribe("router", tags=["a"], after=end) as deliveries:
        assert next(deliveries).event.content == "next"


@pytest.mark.parametrize("tags", [None, ["a"]])
def test_a_consumer_waits_for_an_archive_that_is_away(archiver, connect, directory, clock, monkeypatch, capfd, tags):
    page, tagged = archiver.page(), archived_observation(archiver, clock)
    end = archiver.position() if tags else None
    page.link(tagged.id, "now")
    failures = iter(range(3))

    def failing(method):
        def answer(*arguments):
            if next(failures, None) is not None:
                raise ArchiveUnavailable("the archive does not answer")
            return method(*arguments)

        return answer

    for name in ("list", "get", "get_part"):
        monkeypatch.setattr(DirectoryStore, name, failing(getattr(DirectoryStore, name)))
    reader = connect("reader", archive_url=directory)
    with reader.subscribe("router", tags=tags, after=end) as deliveries:
        event = next(deliveries).event
    assert event.subject == tagged.id
    assert next(failures, None) is None
    assert capfd.readouterr().err.count("waiting for the archive") == 1


@pytest.mark.parametrize("is_mount_point", [False, True])
def test_a_directory_that_vanishes_is_waited_for_and_one_that_never_existed_is_an_error(
    archiver, connect, directory, clock, is_mount_point
):
    archived_observation(archiver, clock)
    archiver.declare_subscription("router")
    with pytest.raises(ArchiveDamaged, match="set archive_url"):
        connect("lost", archive_url=directory.with_name("typo")).pull("router", max=1)
    reader = connect("reader", archive_url=directory)
    first = reader.pull("router", max=4)
    reader.ack("router", first.token, positions(first))
    mounted = directory.rename(directory.with_name("mounted"))
    if is_mount_point:
        directory.mkdir()
    for _ in range(2):
        with pytest.raises(ArchiveUnavailable, match="mount it again"):
            reader.pull("router", max=4)
    if is_mount_point:
        directory.rmdir()
    mounted.rename(directory)
    assert contents(reader.pull("router", max=4)) == ["3", "4", "5", "6"]
