"""fail2ban filters as rules: the lines they count, for which addresses, and unsupported syntax."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import pytest
import structlog

from daemons.bookmark import BookmarkFile
from daemons.fail2ban import FilterRule, read_filter
from daemons.fail2ban_regex import linear_patterns
from daemons.logwatch import Logwatch
from daemons.rules import read_rules
from scratchbus import Page
from scratchbus.daemon import UnfitPattern
from scratchbus.errors import EngineUnreachable, RulesError
from scratchbus.settings import shipped

COMMON = r"""
[DEFAULT]
logtype = file
_daemon = \S*
__pid_re = (?:\[\d+\])
__prefix_line = <lt_<logtype>/__prefix_line>
[lt_file]
__prefix_line = \s*(?:\S+\s+)?(?:<_daemon><__pid_re>?:\s+)?
"""

DOOR = r"""
[INCLUDES]
before = common.conf
[DEFAULT]
_daemon = doord
__port = (?: port \d+)?   ; of the client
[Definition]
prefregex = ^<F-MLFID>%(__prefix_line)s</F-MLFID>(?:error: )?<F-CONTENT>.+</F-CONTENT>$
knocks = ^Failed <method> for (?P<cond_inv>invalid user )?<F-USER>(?P<cond_user>\S+)|(?(cond_inv)(?:(?! from ).)*?|[^:]+)</F-USER> from <HOST>%(__port)s(?: ssh\d*)?(?(cond_user): |(?:(?:(?! from ).)*)$)
         <knocks-<mode>>
         ^<F-NOFAIL>Closed</F-NOFAIL> by <HOST>$
# A comment in the middle.
         ^Too many knocks$
knocks-normal =
knocks-extra = ^Bad greeting from <ADDR>$
failregex = %(knocks)s
ignoreregex = for admin from
method = \S+
mode = normal
"""  # noqa: E501 - as fail2ban writes it

LINES = """\
Dec 10 06:55:48 host doord[1]: Failed password for invalid user eve from 192.0.2.1 port 38926 ssh2
2026-01-31T10:00:00.123+01:00 host doord[1]: error: Failed password for root from 192.0.2.1 port 2
Dec  1 06:55:48 host doord[1]: message repeated 5 times: [ Failed password for root from 192.0.2.2 port 1 ssh2]
Dec 10 06:55:48 host doord[1]: Failed none for invalid user a b from 2001:DB8::1 port 1 ssh2
Dec 10 06:55:48 host doord[1]: Failed password for admin from 192.0.2.9 port 1 ssh2
Dec 10 06:55:48 host doord[1]: Closed by 192.0.2.9
Dec 10 06:55:48 host doord[1]: Bad greeting from 192.0.2.3
Dec 10 06:55:48 host doord[2]: Too many knocks
Dec 10 06:55:48 host other[1]: Failed password for root from 192.0.2.8 port 1 ssh2
"""


@pytest.fixture
def door(tmp_path: Path) -> Path:
    (tmp_path / "common.conf").write_text(COMMON)
    path = tmp_path / "door.conf"
    path.write_text(DOOR)
    return path


def counted(rule: FilterRule, lines: str = LINES) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in lines.splitlines():
        if seen := rule.sighting(line):
            found[seen["context"]["address"]] += seen["times"]
    return found


def test_a_filter_counts_attempts_by_address(door: Path):
    assert counted(read_filter(str(door))) == {"192.0.2.1": 2, "192.0.2.2": 5, "2001:db8::1": 1}


def test_parameters_select_expressions(door: Path):
    assert counted(read_filter(f"{door}[mode=extra]"))["192.0.2.3"] == 1
    assert counted(read_filter(f'{door}[mode=normal, method="password"]')) == {"192.0.2.1": 2, "192.0.2.2": 5}


def test_a_local_file_overrides_a_filter(door: Path):
    local = "[Definition]\nfailregex = %(known/failregex)s\n  ^Hm from <IP4>$\n_daemon = (?:%(known/_daemon)s|doord)\n"
    door.with_suffix(".local").write_text(local)
    assert counted(read_filter(str(door)), "doord: Hm from 192.0.2.7\n" + LINES)["192.0.2.7"] == 1
    assert counted(read_filter(str(door)))["192.0.2.2"] == 5


def test_a_line_without_an_address_has_that_of_its_connection(door: Path):
    lines = (
        "host doord[7]: Too many knocks\nhost doord[7]: Closed by 192.0.2.9\nhost doord[7]: Too many knocks\n"
        "host doord[8]: Too many knocks\nhost doord[7]: Gone\nhost doord[7]: Too many knocks\n"
    )
    forgetful = DOOR.replace(
        "         ^Too", "         ^<F-NOFAIL><F-MLFFORGET>Gone</F-MLFFORGET></F-NOFAIL>$\n         ^Too"
    )
    door.write_text(forgetful)
    assert counted(read_filter(str(door)), lines) == {"192.0.2.9": 1}


def test_an_expression_without_an_address_is_skipped_and_logged(door: Path):
    door.write_text(DOOR.replace("<F-MLFID>", "").replace("</F-MLFID>", ""))
    with structlog.testing.capture_logs() as logged:
        read_filter(str(door))
    (line,) = logged
    assert (line["failregex"], line["filter"]) == (3, "door")
    assert "no address" in line["reason"]


def test_an_attacker_cannot_choose_the_address(door: Path):
    name = "x from 203.0.113.5 port 1 ssh2"
    line = f"Dec 10 06:55:48 host doord[1]: Failed password for invalid user {name} from 192.0.2.1 port 5 ssh2"
    found = counted(read_filter(str(door)), line)
    assert "203.0.113.5" not in found


def test_a_filter_counts_like_the_shipped_rules(door: Path):
    door.with_name("sshd.conf").write_text(DOOR.replace("doord", "sshd"))
    random.seed(7)
    lines = "\n".join(
        f"Dec 10 06:55:48 host sshd[{n}]: "
        + random.choice(
            ["Failed password for invalid user {} from {} port 1 ssh2", "Failed password for {} from {} port 2 ssh2",
             "message repeated 3 times: [ Failed password for {} from {} port 2 ssh2]", "Closed {} by {}"]
        ).format(random.choice(["root", "ftp", "a b"]), f"192.0.2.{random.randrange(9)}")
        for n in range(300)
    )  # fmt: skip
    (ours,) = read_rules(shipped("logwatch.yaml"))
    expected: Counter[str] = Counter()
    for line in lines.splitlines():
        if seen := ours.sighting(line):
            expected[seen["context"]["address"]] += seen["times"]
    assert sum(expected.values()) > 200
    assert counted(read_filter(str(door.with_name("sshd.conf"))), lines) == expected


def test_a_line_that_ends_a_connection_is_counted_after_an_engine_error(
    bus, page, door: Path, tmp_path: Path, monkeypatch
):
    door.write_text(DOOR.replace("^Too many knocks$", "^<F-MLFFORGET>Too</F-MLFFORGET> many knocks$"))
    log = tmp_path / "door.log"
    log.write_text("host doord[1]: Closed by 192.0.2.1\nhost doord[1]: Too many knocks\n")
    watch = Logwatch("main", [read_filter(str(door))], log, BookmarkFile(tmp_path / "state.json"))
    with monkeypatch.context() as patch:
        patch.setattr(Page, "add", Mock(side_effect=EngineUnreachable("it is away")))
        with pytest.raises(EngineUnreachable):
            watch.run(bus, threading.Event(), follow=False)
    watch.run(bus, threading.Event(), follow=False)
    assert [each.context["address"] for each in page.active()] == ["192.0.2.1"]


def test_sightings_of_a_filter_are_published(bus, page, door: Path, tmp_path: Path):
    log = tmp_path / "door.log"
    log.write_text(LINES)
    Logwatch("main", [read_filter(str(door))], log, BookmarkFile(tmp_path / "state.json")).run(
        bus, threading.Event(), follow=False
    )
    found = {each.context["address"]: each for each in page.active()}
    assert {address: each.occurrences for address, each in found.items()} == {
        "192.0.2.1": 2, "192.0.2.2": 5, "2001:db8::1": 1,
    }  # fmt: skip
    first = found["192.0.2.1"]
    assert first.content == "door: “Failed … for … from …”, 192.0.2.1"
    assert (first.type, first.tags) == ("risk_alert", ["security", "fail2ban", "door"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[Definition]\nfailregex = ^(?=x)<HOST>", "none can be used"),
        ("[Definition]\nprefregex = ^(?<=x)y\nfailregex = <HOST>", "prefregex: has lookaround"),
        ("[Definition]\nfailregex = %(nothing)s <HOST>", "%(nothing)s is not defined"),
        ("[Definition]\na = %(a)s\nfailregex = %(a)s <HOST>", "refers to itself"),
        ("[Definition]\na = %(a)s%(a)s\nfailregex = %(a)s <HOST>", "refers to itself"),
        ("[Definition]\nmaxlines = 5\nfailregex = <HOST>", "several lines"),
        ("[INCLUDES]\nbefore = bad.conf\n[Definition]\nfailregex = <HOST>", "includes itself"),
        ("[Definition]\n", "none can be used"),
        ("failregex = <HOST>", "not a filter of fail2ban"),
    ],
)
def test_an_unusable_filter_is_refused(tmp_path: Path, text: str, reason: str):
    path = tmp_path / "bad.conf"
    path.write_text(text)
    with pytest.raises(RulesError, match=re.escape(reason)):
        read_filter(str(path))


def test_a_missing_filter_or_a_wrong_parameter_is_refused(door: Path):
    with pytest.raises(RulesError, match="cannot be read"):
        read_filter(str(door.with_name("none.conf")))
    with pytest.raises(RulesError, match="name=value"):
        read_filter(f"{door}[extra]")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r"a(?=b)", "lookaround"), (r"(?<!a)b", "lookaround"), (r"(a)\1", "backreference"), (r"(?>a)", "atomic"),
        (r"a*+", "possessive"), (r"(?:(?P<a>x)|y)*(?(a)b|c)", "repeated"), (r"(", "not a regular expression"),
    ],
)  # fmt: skip
def test_syntax_that_re2_lacks_is_named(text: str, reason: str):
    with pytest.raises(UnfitPattern, match=reason):
        linear_patterns(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"^(?P<c>no )?(?P<h>\w+)(?(c)!|\?)$", ["no ", "a", "!", "?"]),
        (r"^(?P<c>no )?(?P<h>\w+)(?(c)!)$", ["no ", "a", "!"]),
        (r"^(?:(?P<c>\d+)|x) (?P<h>(?(c)a+|b+))$", ["1 ", "x ", "a", "b"]),
        (r"^(?:(?! from ).)*? from (?P<h>\S+)(?:(?! from ).)*$", ["from", " ", "f", "x", " from "]),
        (r"^(?:(?!aab).)*(?P<h>c?)$", ["a", "b", "c"]),
        (r"(?i)^[^\W\d]{2,3}(?P<h>[a-c.\]\-]*)\b", ["A", "b", "-", ".", "]", " ", "7"]),
        (r"^(?i:a|(?-i:b))+(?P<h>c?)$", ["a", "A", "b", "B", "c", "C"]),
    ],
)
def test_rewritten_expressions_match_as_in_python(text: str, words: list[str]):
    random.seed(3)
    python, ours = re.compile(text), linear_patterns(text)
    matches = 0
    for _ in range(3_000):
        line = "".join(random.choice(words) for _ in range(random.randrange(8)))
        if " from from " in line:
            continue  # overlaps: Python does not look at what the repetition would leave over
        expected = python.search(line)
        found = next(filter(None, (each.search(line) for each in ours)), None)
        assert (expected and expected["h"]) == (found and found.groupdict("")["h"]), line
        matches += bool(expected)
    assert matches > 20
