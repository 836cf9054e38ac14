"""The rules file, and the observations that its rules make of log lines."""

import json
import re
import subprocess
import sys
from collections import Counter

import pytest

from daemons.rules import parse_rules, read_rules
from scratchbus.errors import RulesError
from scratchbus.settings import shipped

PLAIN = """\
rules:
  - name: slow
    match: 'took (?P<ms>\\d+) ms(?: for (?P<who>\\w+))?'
    publish:
      type: observation
      content: "{ms} ms, {{literally}}"
      dedupe_key: "slow:{who}"
      tags: [slow, "{who}"]
      owner: "{who}"
      context: {limits: {ms: "{ms}", seen: ["{who}", 7]}, kept: true, empty: ""}
      confidence: 0.5
      ttl: 2h
"""


def one_rule(publish="{type: observation, content: x}", match="x", name="one"):
    return f"rules:\n  - name: {name}\n    match: '{match}'\n    publish: {publish}\n"


def test_a_matching_line_fills_every_placeholder():
    (rule,) = parse_rules(PLAIN, "rules.yaml")
    assert rule.sighting("it took 250 ms for alice today") == {
        "type": "observation",
        "content": "250 ms, {literally}",
        "dedupe_key": "slow:alice",
        "tags": ["slow", "alice"],
        "owner": "alice",
        "context": {"limits": {"ms": "250", "seen": ["alice", 7]}, "kept": True, "empty": ""},
        "confidence": 0.5,
        "ttl": "2h",
        "times": 1,
    }


def test_an_unmatched_group_is_empty_and_makes_no_tag_or_owner():
    (rule,) = parse_rules(PLAIN, "rules.yaml")
    seen = rule.sighting("took 1 ms")
    assert seen["tags"] == ["slow"]
    assert seen["owner"] is None
    assert seen["dedupe_key"] == "slow:"


def test_a_line_that_does_not_match_publishes_nothing():
    (rule,) = parse_rules(PLAIN, "rules.yaml")
    assert rule.sighting("took a while") is None


@pytest.mark.parametrize(
    ("line", "times"),
    [("seen 5 times", 5), ("seen", 1), ("seen 0 times", 1), (f"seen {'9' * 5000} times", 1)],
    ids=["five", "no number", "zero", "absurd"],
)
def test_the_group_times_is_the_number_of_sightings(line, times):
    (rule,) = parse_rules(one_rule(match=r"seen(?: (?P<times>\d+) times)?"), "rules.yaml")
    assert rule.sighting(line)["times"] == times


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "'rules' is missing"),
        ("rules: ]", 1, "not YAML"),
        ("rules: []", 1, "at least one"),
        ("rule: []", 1, "allowed: rules"),
        ("- rules", 1, "not a mapping"),
        ("rules:\n  - name: a\n    match: x\n", 2, "'publish' is missing"),
        (one_rule(name="a b"), 2, "not a name"),
        (one_rule(match="("), 3, "not a regular expression"),
        (one_rule(match=r"(a)\1"), 3, r"linear time: invalid escape sequence: \\1"),
        (one_rule(match="(?=a)b"), 3, r"linear time: invalid perl operator: \(\?=.*without backreferences"),
        (one_rule(match="a{1,2000}"), 3, "linear time: invalid repetition size"),
        (one_rule(publish="{type: observation, content: x, colour: red}"), 4, "allowed: confidence, content"),
        (one_rule(publish="{type: observation}"), 4, "'content' is missing"),
        (one_rule(publish="{type: Observation, content: x}"), 4, "not the name of a type"),
        (one_rule(publish='{type: observation, content: "{who}"}', match="(?P<user>x)"), 4, "allowed: user"),
        (one_rule(publish='{type: observation, content: "{user.name}"}', match="(?P<user>x)"), 4, "allowed: user"),
        (one_rule(publish='{type: observation, content: "{user!r}"}', match="(?P<user>x)"), 4, "allowed: user"),
        (one_rule(publish='{type: observation, content: "a } b"}'), 4, "literal brace twice"),
        (one_rule(publish='{type: observation, content: x, context: {a: ["{no}"]}}'), 4, "allowed: none"),
        (one_rule(publish="{type: observation, content: x, context: [a]}"), 4, "is not a mapping"),
        (one_rule(publish="{type: observation, content: x, tags: a}"), 4, "not a list"),
        (one_rule(publish="{type: observation, content: x, confidence: 2}"), 4, "from 0 to 1"),
        (one_rule(publish="{type: observation, content: x, confidence: .nan}"), 4, "from 0 to 1"),
        (one_rule(publish="{type: observation, content: x, ttl: soon}"), 4, "'soon' is not a valid duration"),
        (one_rule() + one_rule().removeprefix("rules:\n"), 5, "used by two rules"),
    ],
)
def test_an_error_names_file_line_and_allowed_values(text, line, says):
    with pytest.raises(RulesError, match=says) as caught:
        parse_rules(text, "rules.yaml")
    assert caught.value.file == "rules.yaml"
    assert caught.value.line == line
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("match", ["^(a+)+$", "(?:a|a)*b$", "(.*)*x$", "(?P<w>[a-z]+)*!"])
def test_rules_match_in_linear_time(match):
    """Run in a separate process, because a backtracking search blocks the interpreter."""
    code = "import sys\nfrom daemons.rules import parse_rules\n"
    code += "print(parse_rules(sys.argv[1], 'r.yaml')[0].sighting('a' * 50_000 + '#'))"
    command = [sys.executable, "-c", code, one_rule(match=match)]
    assert subprocess.run(command, capture_output=True, timeout=20, check=True).stdout.decode().strip() == "None"


@pytest.mark.parametrize(
    ("match", "line", "found"),
    [
        (r"^(?P<x>\w+) logged", "Müller٣ logged", "Müller٣"),
        (r"(?P<x>[\w.-]+)@", "é.b@c", "é.b"),
        (r"(?P<x>[^\w ]+)", "né #! x", "#!"),
        (r"(?P<x>\W+)", "né# x", "# "),
        (r"n (?P<x>\d+)$", "n ٣4", "٣4"),
        (r"(?P<x>\D+)", "12ab3", "ab"),
        (r"^a\s(?P<x>\S+)\Z", "a\u00a0b", "b"),
        (r"(?P<x>[]\d]+)", "a]4b", "]4"),
        (r"(?P<x>[^]]+)", "]a]", "a"),
        (r"\\w(?P<x>.)", "\\wé", "é"),
        (r"(?i)(?P<x>É)", "é", "é"),
    ],
)
def test_patterns_match_as_in_python(match, line, found):
    publish = '{type: observation, content: "{x}"}'
    (rule,) = parse_rules(f"rules:\n  - name: one\n    match: {json.dumps(match)}\n    publish: {publish}\n", "r.yaml")
    assert re.search(match, line)["x"] == found
    assert rule.sighting(line)["content"] == found


def test_a_missing_rules_file_is_named(tmp_path):
    with pytest.raises(RulesError, match=r"nowhere\.yaml: cannot be read"):
        read_rules(tmp_path / "nowhere.yaml")


# -- the shipped rules -----------------------------------------------------------------------------------------------

HEAD = "Dec 10 07:13:56 host sshd[24227]: "


@pytest.mark.parametrize(
    ("line", "address", "times"),
    [
        (f"{HEAD}Failed password for root from 192.0.2.7 port 42393 ssh2", "192.0.2.7", 1),
        (f"{HEAD}Failed password for invalid user  0101 from 192.0.2.7 port 36279 ssh2", "192.0.2.7", 1),
        (f"{HEAD}message repeated 5 times: [ Failed password for root from 192.0.2.7 port 1 ssh2]", "192.0.2.7", 5),
        (f"{HEAD}Failed password for root from 2001:db8::7 port 42393 ssh2", "2001:db8::7", 1),
        ("2026-01-02T03:04:05.6+00:00 host sshd-session[9]: Failed password for a from 192.0.2.7 port 1 ssh2",
         "192.0.2.7", 1),
        ("2026-11-29T01:02:03.123456+00:00 host sshd[1]: Failed password for root from 192.0.2.7 port 1 ssh2",
         "192.0.2.7", 1),
        (f"{HEAD}Failed password for invalid user x from 198.51.100.1 port 2 ssh2 from 192.0.2.7 port 1 ssh2",
         "192.0.2.7", 1),
    ],
    ids=["plain", "odd user", "repeated", "IPv6", "newer sshd", "newer time",
         "a user name that looks like the end of the line"],
)  # fmt: skip
def test_the_shipped_rules_find_failed_passwords(line, address, times):
    (rule,) = read_rules(shipped("logwatch.yaml"))
    seen = rule.sighting(line)
    assert seen["context"] == {"address": address}
    assert seen["times"] == times


@pytest.mark.parametrize(
    "line",
    [
        f"{HEAD}Accepted password for root from 192.0.2.7 port 42393 ssh2",
        f"{HEAD}Invalid user sshd[1]: Failed password for root from 198.51.100.1 port 1 ssh2",
        f"{HEAD}Disconnecting: Too many authentication failures for root [preauth]",
    ],
    ids=["accepted", "a user name that looks like a line", "another line"],
)
def test_the_shipped_rules_ignore_other_lines(line):
    (rule,) = read_rules(shipped("logwatch.yaml"))
    assert rule.sighting(line) is None


def test_the_shipped_rules_count_attempts_by_address():
    (rule,) = read_rules(shipped("logwatch.yaml"))
    attempts: Counter[str] = Counter()
    for port, (address, times) in enumerate([("192.0.2.1", 1), ("192.0.2.2", 5), ("192.0.2.1", 1)]):
        failed = f"Failed password for root from {address} port {port} ssh2"
        line = failed if times == 1 else f"message repeated {times} times: [ {failed}]"
        seen = rule.sighting(HEAD + line)
        attempts[seen["context"]["address"]] += seen["times"]
    assert attempts == {"192.0.2.1": 2, "192.0.2.2": 5}
