"""The log watcher counts each line of a log once, despite crashes, rotations and refused lines."""

import errno
import threading
from typing import Any
from unittest.mock import Mock

import pytest

from daemons.bookmark import BookmarkFile
from daemons.log_file import MAX_LINE
from daemons.logwatch import Logwatch
from daemons.rules import parse_rules, read_rules
from scratchbus import Bus, Page
from scratchbus.errors import FileGone, InvalidInput, PageFull, PositionLost, UnknownType
from scratchbus.scheduling.paging_out import page_out
from scratchbus.settings import shipped
from tests.inspection import archive, project
from tests.waiting import eventually

LINE = "Dec 10 06:55:48 host sshd[24200]: Failed password for root from {} port 38926 ssh2\n"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "auth.log"


@pytest.fixture
def watch(log, tmp_path):
    def make(rules=None, **options):
        found = read_rules(shipped("logwatch.yaml")) if rules is None else parse_rules(rules, "rules.yaml")
        return Logwatch("main", found, log, BookmarkFile(tmp_path / "state.json"), **options)

    return make


def attempts(page):
    return {each.context["address"]: each.occurrences for each in page.active()}


def append(log, *addresses):
    with log.open("a") as file:
        file.writelines(LINE.format(address) for address in addresses)


def once(watcher, bus):
    watcher.run(bus, threading.Event(), follow=False)


def test_attempts_are_counted_by_address(bus, page, log, watch):
    append(log, "192.0.2.1", "192.0.2.2", "192.0.2.1")
    once(watch(), bus)
    assert attempts(page) == {"192.0.2.1": 2, "192.0.2.2": 1}
    (first, _) = sorted(page.active(), key=lambda each: each.dedupe_key)
    assert first.type == "risk_alert"
    assert first.tags == ["security", "ssh", "brute-force"]
    assert first.source == "tester"


def test_a_second_run_continues_where_the_first_ended(bus, page, log, watch):
    append(log, "192.0.2.1")
    once(watch(), bus)
    append(log, "192.0.2.1")
    end = bus.position()
    once(watch(), bus)
    assert attempts(page) == {"192.0.2.1": 2}
    assert bus.position().shards[0].seq == end.shards[0].seq + 1


def test_rereading_from_the_start_counts_nothing_twice(bus, page, log, watch, tmp_path):
    append(log, "192.0.2.1", "192.0.2.2", "192.0.2.1")
    once(watch(), bus)
    end = bus.position()
    once(watch(from_start=True), bus)
    (tmp_path / "state.json").unlink()
    once(watch(), bus)
    assert bus.position() == end


def test_each_page_counts_the_same_log(bus, page, log, watch, tmp_path):
    append(log, "192.0.2.1", "192.0.2.1")
    once(watch(), bus)
    for name in ("night", "day"):
        elsewhere = Logwatch(name, read_rules(shipped("logwatch.yaml")), log, BookmarkFile(tmp_path / f"{name}.json"))
        once(elsewhere, bus)
        assert attempts(bus.page(name)) == attempts(page) == {"192.0.2.1": 2}


def test_a_crash_before_saving_the_bookmark_counts_nothing_twice(bus, page, log, watch, monkeypatch):
    append(log, "192.0.2.1", "192.0.2.1")

    def crash(*_):
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(BookmarkFile, "save", crash)
        with pytest.raises(RuntimeError, match="power cut"):
            once(watch(), bus)
    append(log, "192.0.2.1")
    once(watch(), bus)
    assert attempts(page) == {"192.0.2.1": 3}


def test_another_bus_gets_the_log_from_the_start(bus, log, watch):
    append(log, "192.0.2.1", "192.0.2.2")
    once(watch(), bus)
    with Bus.connect("memory://another-one", source="tester") as other:
        once(watch(), other)
        assert attempts(other.page("main")) == {"192.0.2.1": 1, "192.0.2.2": 1}


def test_a_lost_bookmark_counts_rotated_logs_only_once(bus, page, log, watch, tmp_path):
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        append(log, address)
        once(watch(), bus)
        log.rename(log.with_name(f"{address}.log"))
    end = bus.position()
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        (tmp_path / "state.json").unlink()
        log.with_name(f"{address}.log").rename(log)
        once(watch(), bus)
        log.unlink()
    assert bus.position() == end


def test_the_last_published_line_is_known_without_history(bus, page, log, watch, monkeypatch):
    append(log, "192.0.2.1", "192.0.2.1")
    once(watch(), bus)
    monkeypatch.delattr(Page, "history")
    append(log, "192.0.2.1")
    once(watch(), bus)
    assert attempts(page) == {"192.0.2.1": 3}


def test_the_last_published_line_is_known_after_it_is_cleared(bus, page, log, watch):
    rule = "rules: [{{name: {}, match: failed, publish: {{type: observation, content: seen}}}}]"
    log.write_text("failed\n")
    once(watch(rule.format("one")), bus)
    (seen,) = page.active()
    page.resolve(seen.id)
    page.clear_resolved([seen.id])
    once(watch(rule.format("two")), bus)  # would publish the line if it were read again
    assert page.active() == []


def test_the_last_published_line_is_known_if_it_was_archived_elsewhere(url, log, watch, tmp_path):
    rule = "rules: [{name: one, match: failed, publish: {type: observation, content: seen}}]"
    log.write_text("failed\n")
    limits: dict[str, Any] = {"retain": "1ms", "retain_events": 1, "keep_final": "1ms", "archive_segment": 2}
    with Bus.connect(url, source="tester", archive_url=str(tmp_path / "archive"), **limits) as bus:
        page = bus.page("main")
        once(watch(rule), bus)
        (seen,) = page.active()
        page.archive(seen.id)
        page.add("observation", "later")
        project(bus)
        eventually(lambda: bus.converse(page_out(bus.core, 1)).documents, "it is paged out")
        archive(bus)
    with Bus.connect(url, source="tester") as bus:
        with pytest.raises(PositionLost):
            bus.page("main").get(seen.id)
        end = bus.position()
        log.write_text("failed\nno match\n")
        once(watch(rule), bus)
        assert bus.position() == end


def test_an_unfinished_last_line_is_counted_once(bus, page, log, watch, tmp_path):
    rule = "rules: [{name: all, match: '(?P<all>.+)', publish: {type: observation, content: '{all}'}}]"
    log.write_text("first\nlast")
    once(watch(rule), bus)
    assert {each.content for each in page.active()} == {"first", "last"}
    end = bus.position()
    with log.open("a") as file:
        file.write(" one\nnext\n")
    once(watch(rule), bus)
    assert {each.content for each in page.active()} == {"first", "last", "next"}
    (tmp_path / "state.json").unlink()
    once(watch(rule), bus)
    assert bus.position().shards[0].seq == end.shards[0].seq + 1


def test_a_changed_rule_does_not_count_old_lines_again(bus, page, log, watch):
    append(log, "192.0.2.1")
    rule = "rules: [{{name: ssh, match: 'from (?P<a>\\S+)', publish: {{type: risk_alert, content: {}}}}}]"
    once(watch(rule.format("one")), bus)
    once(watch(rule.format("two"), from_start=True), bus)
    assert [each.content for each in page.active()] == ["one"]


def test_a_line_that_the_bus_refuses_is_skipped(bus, page, log, watch):
    log.write_text(f"{'x' * (MAX_LINE // 2)}\nfine\n")
    once(watch("rules: [{name: all, match: '(?P<all>.+)', publish: {type: observation, content: '{all}'}}]"), bus)
    assert [each.content for each in page.active()] == ["fine"]


def test_a_line_with_an_unknown_type_is_skipped(bus, page, log, watch):
    log.write_text("observations: one\nobservation: two\nNo Type!: three\n: four\nreminder: five\n")
    rule = "{name: all, match: '^(?P<type>.*): (?P<all>.*)', publish: {type: '{type}', content: '{all}'}}"
    once(watch(f"rules: [{rule}]"), bus)
    assert {(each.type, each.content) for each in page.active()} == {("observation", "two"), ("reminder", "five")}


def test_an_unknown_type_in_a_rule_is_an_error_at_the_start(bus, log, watch):
    log.touch()
    with pytest.raises(UnknownType, match="did you mean 'observation'"):
        once(watch("rules: [{name: all, match: x, publish: {type: observations, content: seen}}]"), bus)


def test_a_type_removed_while_reading_stops_before_the_line(bus, page, log, watch, tmp_path, monkeypatch):
    log.write_text("sda1 is full\n")
    rule = "rules: [{name: disk, match: full, publish: {type: disk_full, content: seen}}]"
    with monkeypatch.context() as patch:
        patch.setattr(Logwatch, "_check_types", lambda *_: None)  # the type existed at the start
        with pytest.raises(UnknownType):
            once(watch(rule), bus)
    (tmp_path / "types.yaml").write_text("types:\n  disk_full:\n    priority: 80\n")
    bus.push_types(tmp_path / "types.yaml")
    once(watch(rule), bus)
    assert [each.type for each in page.active()] == ["disk_full"]


def test_a_new_type_from_yaml_needs_no_code(bus, page, log, watch, tmp_path):
    types = tmp_path / "types.yaml"
    types.write_text("types:\n  disk_full:\n    priority: 80\n")
    bus.push_types(types)
    log.write_text("sda1 is full\n")
    rule = "rules: [{name: disk, match: '(?P<disk>\\w+) is full', publish: {type: disk_full, content: '{disk}'}}]"
    once(watch(rule), bus)
    (seen,) = page.active()
    assert (seen.type, seen.content, seen.priority) == ("disk_full", "sda1", 80)


def test_a_missing_log_is_an_error_unless_followed(bus, page, log, watch, running, log_of):
    with pytest.raises(FileGone):
        once(watch(), bus)
    logged, watcher = log_of("daemons.logwatch"), watch()
    with running(lambda stop: watcher.run(bus, stop, follow=True)):
        eventually(lambda: logged, "it has looked for the log")
        assert logged[0]["event"] == "there is no log yet; waiting for it"
        append(log, "192.0.2.1")
        eventually(lambda: attempts(page) == {"192.0.2.1": 1}, "the first line of the new log")


def test_a_followed_log_is_read_as_it_grows_and_rotates(bus, page, log, watch, running):
    watcher = watch()
    with running(lambda stop: watcher.run(bus, stop, follow=True)):
        append(log, "192.0.2.1")
        eventually(lambda: attempts(page) == {"192.0.2.1": 1}, "the first line")
        append(log, "192.0.2.1")
        eventually(lambda: attempts(page) == {"192.0.2.1": 2}, "the second line")
        log.rename(log.with_name("auth.log.1"))
        append(log, "192.0.2.1")
        eventually(lambda: attempts(page) == {"192.0.2.1": 3}, "the line after the rotation")
        log.write_text("")
        append(log, "192.0.2.2")
        eventually(lambda: attempts(page) == {"192.0.2.1": 3, "192.0.2.2": 1}, "the line after the truncation")
    once(watch(from_start=True), bus)
    assert attempts(page) == {"192.0.2.1": 3, "192.0.2.2": 1}


def test_a_full_disk_for_the_bookmark_stops_no_watcher(bus, page, log, watch, running, monkeypatch, tmp_path, log_of):
    append(log, "192.0.2.1")
    once(watch(), bus)
    logged, watcher = log_of("daemons.logwatch"), watch()
    with monkeypatch.context() as patch, running(lambda stop: watcher.run(bus, stop, follow=True)):
        patch.setattr("tempfile.mkstemp", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        append(log, "192.0.2.1")
        eventually(lambda: attempts(page) == {"192.0.2.1": 2}, "the second line")
        append(log, "192.0.2.1")
        eventually(lambda: attempts(page) == {"192.0.2.1": 3}, "the third line")
        eventually(lambda: any(line["log_level"] == "warning" for line in logged), "the warning")
        warnings = [line for line in logged if line["log_level"] == "warning"]
        assert [line["event"] for line in warnings] == ["cannot store the position in the log; going on"]
        patch.undo()
        append(log, "192.0.2.1")
        eventually(lambda: attempts(page) == {"192.0.2.1": 4}, "the fourth line")
    assert BookmarkFile(tmp_path / "state.json").load().position.offset == log.stat().st_size


def test_a_watcher_stopped_while_it_publishes_stores_its_position_after_that_line(bus, page, log, watch, tmp_path):
    append(log, "192.0.2.1", "192.0.2.2")
    stop = threading.Event()
    (rule,) = read_rules(shipped("logwatch.yaml"))

    def sighting_and_stop(text):
        stop.set()
        return rule.sighting(text)

    stopping = Mock(type=rule.type, sighting=sighting_and_stop)
    stopping.name = rule.name
    bookmark = BookmarkFile(tmp_path / "state.json")
    Logwatch("main", [stopping], log, bookmark).run(bus, stop, follow=True)
    assert attempts(page) == {"192.0.2.1": 1}
    assert bookmark.load().position.offset == len(LINE.format("192.0.2.1"))


def test_a_bookmark_that_could_never_be_stored_ends_a_watcher(bus, log, tmp_path):
    append(log, "192.0.2.1")
    (tmp_path / "file").touch()
    rules, file = read_rules(shipped("logwatch.yaml")), BookmarkFile(tmp_path / "file" / "state.json")
    with pytest.raises(InvalidInput, match="choose another --state"):
        Logwatch("main", rules, log, file).run(bus, threading.Event(), follow=True)


def test_a_full_page_stops_reading_before_the_refused_line(url, log, watch):
    append(log, "192.0.2.1", "192.0.2.2")
    with Bus.connect(url, source="tester", max_observations=1, on_full="refuse") as bus:
        with pytest.raises(PageFull):
            once(watch(), bus)
        page = bus.page("main")
        page.resolve(page.active()[0].id)
        once(watch(), bus)
        assert attempts(page) == {"192.0.2.2": 1}
