"""The table picks a tool by type and tags; blocking an address twice changes nothing."""

import resource
import threading
from datetime import UTC, datetime

import pytest

from daemons.tools import blocklist, parse_tools, read_tools
from scratchbus.errors import InvalidField, RulesError
from scratchbus.settings import shipped

KNOWN = ("blocklist", "notify")


@pytest.fixture
def alert(page):
    def add(address="192.0.2.1", tags=("security", "brute-force"), type="risk_alert", **more):
        return page.add(type, "Failed passwords", tags=tags, context={"address": address}, **more)

    return add


@pytest.mark.parametrize(
    ("type", "tags", "tool", "success"),
    [
        ("risk_alert", ("security", "brute-force"), "blocklist", "done"),
        ("risk_alert", ("fraud",), "notify", "notified"),
        ("pending_confirmation", (), "notify", "notified"),
        ("dependency", (), "notify", "notified"),
        ("reminder", (), "notify", "notified"),
    ],
)
def test_the_shipped_table_picks_a_tool_and_its_outcome(alert, type, tags, tool, success):
    more = {"remind_at": datetime.now(UTC)} if type == "reminder" else {}
    picked = read_tools(shipped("tools.yaml"), KNOWN).pick(alert(type=type, tags=tags, **more))
    assert (picked.tool, picked.success) == (tool, success)


def test_the_shipped_table_ignores_other_types(alert):
    assert read_tools(shipped("tools.yaml"), KNOWN).pick(alert(type="observation")) is None


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "'tools' is missing"),
        ("tools:\n  - tool: blocklist\n", 2, "'type' is missing"),
        ("tools:\n  - {tool: notify, type: risk_alert}\n", 2, "'success' is missing"),
        ("tools:\n  - tool: notify\n    success: resolved\n    type: risk_alert\n", 3, "done.*notified.*pending"),
        ("tools:\n  - {tool: shout, type: risk_alert, success: done}\n", 2, "allowed: blocklist, notify"),
        ("tools:\n  - tool: notify\n    success: done\n    type: Risk!\n", 4, "not a valid name"),
        ("tools:\n  - tool: notify\n    type: risk_alert\n    tag: x\n", 4, "allowed: success, tags, tool, type"),
        ("tools:\n  - tool: notify\n    success: done\n    type: risk_alert\n    tags: x\n", 5, "not a list"),
    ],
)
def test_an_error_in_the_table_names_its_line(text, line, says):
    with pytest.raises(RulesError, match=says) as caught:
        parse_tools(text, "tools.yaml", KNOWN)
    assert caught.value.line == line


def test_the_error_of_a_long_address_fits_a_reason(alert, tmp_path):
    with pytest.raises(InvalidField, match="is not an IP address") as refused:
        blocklist(tmp_path / "list")(alert("1" * 20_000))
    assert len(str(refused.value)) < 200


def test_an_address_is_blocked_once(alert, tmp_path):
    file = tmp_path / "deep" / "blocklist.txt"
    block = blocklist(file)
    assert block(alert("192.0.2.1")) == block(alert("192.0.2.1")) == "blocklist:192.0.2.1"
    block(alert("2001:DB8::1"))
    assert file.read_text() == "192.0.2.1\n2001:db8::1\n"


def test_concurrent_calls_block_an_address_once(alert, tmp_path):
    file = tmp_path / "blocklist.txt"
    alerts = [alert(f"192.0.2.{number % 5}") for number in range(40)]
    threads = [threading.Thread(target=blocklist(file), args=(each,)) for each in alerts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(file.read_text().split()) == [f"192.0.2.{number}" for number in range(5)]


def test_a_torn_last_line_does_not_swallow_the_next_address(alert, tmp_path):
    file = tmp_path / "blocklist.txt"
    file.write_text("192.0.2.9")
    blocklist(file)(alert("192.0.2.1"))
    assert file.read_text() == "192.0.2.9\n192.0.2.1\n"


def test_a_full_disk_leaves_no_part_of_an_address(alert, tmp_path):
    file = tmp_path / "blocklist.txt"
    file.write_text("192.0.2.9\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len("192.0.2.9\n198.51.100.1"), before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            blocklist(file)(alert("198.51.100.17"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_text() == "192.0.2.9\n"
    blocklist(file)(alert("198.51.100.17"))
    assert file.read_text() == "192.0.2.9\n198.51.100.17\n"


def test_equivalent_addresses_are_blocked_once(alert, tmp_path):
    file = tmp_path / "blocklist.txt"
    assert blocklist(file)(alert("::ffff:192.0.2.1")) == blocklist(file)(alert("192.0.2.1"))
    assert file.read_text() == "192.0.2.1\n"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "example.org",
        "192.0.2.1; rm -rf /",
        "192.0.2.1\n192.0.2.2",
        7,
        "127.0.0.1",
        "::",
        "2001:db8::1%eth0\n192.0.2.2",
        "::ffff:127.0.0.1",
        "::ffff:0.0.0.0",
        "fe80::1",
        "169.254.0.1",
        "ff02::1",
        "224.0.0.1",
        "255.255.255.255",
        "::192.0.2.1",
    ],
)
def test_an_invalid_or_local_address_is_refused(alert, tmp_path, address):
    file = tmp_path / "blocklist.txt"
    with pytest.raises(InvalidField, match="block"):
        blocklist(file)(alert(address))
    assert not file.exists()
