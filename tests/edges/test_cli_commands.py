"""The effect of each command, by its JSON output."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from scratchbus import Bus, Page
from scratchbus.cli.invocation import Invocation
from scratchbus.errors import EngineError
from scratchbus.settings import shipped
from tests.edges.conftest import Cli, Result
from tests.waiting import PATIENCE

pytestmark = pytest.mark.real

_TICKETS = """
types:
  ticket:
    priority: 99
    description: Something to do.
    default_ttl: 1d
"""


def test_blocked_and_scheduled_observations_are_not_ready(cli: Cli):
    wall = cli.add()
    roof = cli.json("add", "risk_alert", "Roof", "--source", "me", "--blocked-by", wall[-8:]).document
    later = cli.json("add", "risk_alert", "Later", "--source", "me", "--not-before", "10m").document
    hourly = cli.json("add", "observation", "Look", "--source", "me", "--every", "1h").document
    assert (roof["blocked_by"], hourly["every"]) == ([wall], "1h")
    assert datetime.fromisoformat(later["not_before"]) > datetime.now(UTC) + timedelta(minutes=9)
    assert [each["id"] for each in cli.json("ready").documents] == [wall]
    refused = cli("claim", roof["id"], "--by", "me")
    assert (refused.code, f"{wall} blocks it" in refused.err) == (4, True)
    assert "every" in cli("show", hourly["id"]).out
    cli("update", roof["id"], "--blocked-by", "")
    assert [each["id"] for each in cli.json("ready", "--limit", "1").documents] == [roof["id"]]


def test_update_changes_start_times_recurrences_and_reminders(cli: Cli):
    def rescheduled(id: str, *options: str):
        return cli.json("update", id, "--source", "me", *options).document

    later = cli.json("add", "risk_alert", "Later", "--source", "me", "--not-before", "10m").document["id"]
    hourly = cli.json("add", "observation", "Look", "--source", "me", "--every", "1h").document["id"]
    call = cli.json("add", "reminder", "Call", "--source", "me", "--remind-at", "10m").document["id"]
    in_an_hour = datetime.now(UTC) + timedelta(minutes=59)
    assert datetime.fromisoformat(rescheduled(later, "--not-before", "1h")["not_before"]) > in_an_hour
    rescheduled(later, "--not-before", "now")
    assert [each["id"] for each in cli.json("ready").documents] == [later, call]
    assert rescheduled(hourly, "--every", "0 3 * * *")["not_before"][11:16] == "03:00"
    assert datetime.fromisoformat(rescheduled(call, "--remind-at", "1h")["remind_at"]) > in_an_hour
    assert "remind_at" not in rescheduled(call, "--remind-at", "never")
    refused = cli("update", later, "--every", "1h", "--source", "me")
    assert (refused.code, "does not recur; add a new one that does" in refused.err) == (5, True)


def test_a_list_on_a_terminal_marks_scheduled_and_recurring(cli: Cli):
    cli("add", "observation", "Now", "--source", "me")
    cli("add", "observation", "Later", "--source", "me", "--not-before", "10m")
    cli("add", "observation", "Often", "--source", "me", "--every", "1h")
    with cli.start("list", terminal=True) as running:
        running.wait_for("Now")
        running.process.wait(PATIENCE)
        assert [word in running.seen for word in (b"scheduled", b"recurs", b"active")] == [True, True, False]


def test_a_terminal_marks_observations_while_they_are_blocked(cli: Cli):
    wall = cli.add("Wall")
    roof = cli.json("add", "observation", "Roof", "--source", "me", "--blocked-by", wall).document["id"]

    def shown(*words: str) -> bytes:
        with cli.start(*words, terminal=True) as running:
            running.wait_for("Roof")
            running.process.wait(PATIENCE)
            return bytes(running.seen)

    assert [b"blocked" in shown(*words) for words in (["list"], ["show", roof])] == [True, True]
    assert "blocked " not in cli("list").out  # a pipe gets the status
    cli("resolve", wall, "--source", "me")
    assert b"blocked" not in shown("list")
    assert b"blocked \xc2\xb7" not in shown("show", roof)


@pytest.mark.parametrize("command", ["list", "active", "tail"])
def test_a_narrow_terminal_leaves_room_for_the_content(cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str):
    cli.add("Disk 93% full on db-1, 7% left", type="pending_confirmation")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    assert "Disk 93% full on d" in cli(command).out


def test_add_takes_every_field(cli: Cli):
    rests_on = cli.add()
    added = cli.json(
        "add", "risk_alert", "Fraud ring", "--source", "fraud_detector", "--tag", "security", "--tag", "cards",
        "--ttl", "2h", "--context", "task_id=t1", "--context", "n=3", "--context", 'deep={"a": [1]}', "--context",
        "odd=NaN", "--metadata", "x=true", "--confidence", "0.9", "--owner", "bob", "--dedupe-key", "ring",
        "--times", "4", "--evidence", rests_on[-8:], "--event-id", "mine",
    ).document  # fmt: skip
    expected = {
        "type": "risk_alert", "content": "Fraud ring", "source": "fraud_detector", "tags": ["security", "cards"],
        "context": {"task_id": "t1", "n": 3, "deep": {"a": [1]}, "odd": "NaN"}, "metadata": {"x": True},
        "confidence": 0.9, "owner": "bob", "dedupe_key": "ring", "occurrences": 4, "evidence": [rests_on],
        "page": cli.page, "status": "active", "version": 1,
    }  # fmt: skip
    assert {name: added[name] for name in expected} == expected
    lived = datetime.fromisoformat(added["expires_at"]) - datetime.fromisoformat(added["created_at"])
    assert lived == timedelta(hours=2)
    assert added["updated_at"] == added["created_at"]
    assert "-" in added["position"]
    assert cli.json("show", added["id"]).document == added


def test_add_reports_the_displaced_observation(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SCRATCHBUS_MAX_OBSERVATIONS", "1")
    first = cli("add", "observation", "one", "--source", "me")
    assert first.err == ""
    second = cli.json("add", "risk_alert", "two", "--source", "me")
    assert f"the page is full: displaced {first.out.strip()[-8:]} (observation, priority 20)" in second.err


def test_an_add_tells_that_it_cannot_know_who_was_displaced(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise EngineError("gone")

    monkeypatch.setattr(Page, "displaced", fail)
    added = cli("add", "observation", "one", "--source", "me")
    assert (added.code, len(added.out.strip())) == (0, 26)
    assert "what it displaced, if anything, is not known: gone" in added.err


def test_repeats_of_a_dedupe_key_are_counted(cli: Cli):
    first = cli.add("again", "--dedupe-key", "k")
    assert cli.add("again", "--dedupe-key", "k", "--times", "2") == first
    assert cli.json("show", first).document["occurrences"] == 3


def test_a_retry_with_the_same_event_id_adds_nothing(cli: Cli):
    assert cli.add("once", "--event-id", "e1") == cli.add("once", "--event-id", "e1")
    assert len(cli.json("list").documents) == 1


def test_a_program_can_retry_an_addition_of_the_command_line(cli: Cli):
    id = cli.add("once", "--event-id", "from-either", "--tag", "t")
    with Bus.connect(source="test") as bus, Bus.connect() as anonymous:
        again = bus.page(cli.page).add("observation", "once", tags=["t"], event_id="from-either")
        also = anonymous.page(cli.page).add("observation", "once", source="test", tags=["t"], event_id="from-either")
    assert (again.id, also.id) == (id, id)


def test_add_reads_content_from_standard_input(cli: Cli):
    done = cli.process("add", "observation", "-", "--source", "me", "--json", given="two\nlines\n")
    assert done.document["content"] == "two\nlines"


def test_a_reminder_takes_a_time_or_an_event_filter(cli: Cli):
    before = datetime.now(UTC)
    at = cli.json("add", "reminder", "call", "--source", "me", "--remind-at", "10m").document["remind_at"]
    assert timedelta(minutes=9) < datetime.fromisoformat(at) - before < timedelta(minutes=11)
    options = ("--remind-on", "type=risk_alert", "--remind-on", "tags=a,b")
    waiting = cli.json("add", "reminder", "look", "--source", "me", *options).document
    assert waiting["remind_on"] == {"type": "risk_alert", "tags": ["a", "b"]}


def test_expires_at_takes_a_timestamp(cli: Cli):
    id = cli.add("one", "--expires-at", "2099-01-31T12:00:00Z")
    assert cli.json("show", id).document["expires_at"].startswith("2099-01-31T12:00:00")


def test_update_replaces_only_the_given_fields(cli: Cli):
    id = cli.add("before", "--tag", "a", "--context", "x=1", "--owner", "bob")
    options = ("--content", "after", "--confidence", "0.5", "--expires-at", "never", "--expected-version", "1")
    status = ("--status", "pending_review", "--reason", "too little to go on")
    after = cli.json("update", id[-8:], *options, *status, "--metadata", "y=2").document
    changed = {"content": "after", "confidence": 0.5, "expires_at": None, "reason": "too little to go on"}
    changed["status"] = "pending_review"
    kept = {"tags": ["a"], "context": {"x": 1}, "owner": "bob"}
    assert {name: after[name] for name in changed | kept} == changed | kept
    emptied = cli.json("update", id, "--owner", "", "--tag", "").document
    assert (emptied["owner"], emptied["tags"]) == (None, [])


def test_list_filters_by_each_option(cli: Cli):
    red = cli.add("Red build", "--tag", "ci", "--tag", "red", "--owner", "bob", "--context", "job=7")
    alert = cli.add("Fraud", "--tag", "ci", type="risk_alert")
    cli.json("resolve", alert)

    def ids(*options: str) -> list[str]:
        return [each["id"] for each in cli.json("list", *options).documents]

    assert ids() == ids("--all") == [alert, red]
    assert ids("--limit", "1") == [alert]
    assert ids("--after", alert[-8:]) == [red]
    assert ids("--type", "risk_alert") == ids("--status", "resolved") == ids("--text", "fRAUD") == [alert]
    assert (
        ids("--status", "resolved", "--status", "active") == ids("--tag", "ci") == ids("--since", "1h") == [alert, red]
    )
    assert ids("--tag", "ci", "--tag", "red") == ids("--owner", "bob") == ids("--context", "job=7") == [red]
    assert ids("--source", "test") == [alert, red]
    assert ids("--source", "nobody") == ids("--since", "2099-01-01T00:00:00Z") == []


def test_list_reports_how_many_more_match(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    first, second, third = (cli.add(f"{n}", "--tag", "ci", "--confidence", f"0.{n + 7}") for n in range(3))
    done = cli("list", "--tag", "ci", "--limit", "1")
    assert f"2 more match: go on with --after {third[-8:]}, or show all with --all" in done.err
    assert "more match" in cli.json("list", "--limit", "1").err
    assert "1 more match" in cli("list", "--limit", "1", "--after", third).err
    for rest in (("--limit", "3"), ("--after", first), ("--limit", "1", "--confidence", "0.9"), ("--all",)):
        assert "more match" not in cli("list", *rest).err
    assert [each["id"] for each in cli.json("list", "--confidence", "0.8").documents] == [third, second]
    monkeypatch.setattr("scratchbus.cli.read._MAX_COUNTED", 2)  # the limit of the count
    assert cli("list", "--limit", "1").err.startswith("At least 2 more match")


def test_active_is_ordered_by_priority(cli: Cli):
    assert cli("active").err.endswith(", or give another --page\n")
    low, high = cli.add("low"), cli.add("high", type="risk_alert")
    cli.json("review", cli.add("waiting"))
    assert [each["id"] for each in cli.json("active").documents] == [high, low]
    first = cli.json("active", "--limit", "1")
    assert [each["id"] for each in first.documents] == [high]
    assert first.err == "1 more are active: show all without --limit\n"
    assert cli.json("active", "--limit", "2").err == cli("active").err == ""


@pytest.mark.parametrize(
    ("verbs", "status"),
    [
        (["review"], "pending_review"), (["resolve"], "resolved"), (["archive"], "archived"),
        (["resolve", "reopen"], "active"),
    ],
)  # fmt: skip
def test_a_verb_changes_several_observations_with_its_reason(cli: Cli, verbs: list[str], status: str):
    ids = [cli.add("one"), cli.add("two")]
    for verb in verbs:
        done = cli.json(verb, *(id[-8:] for id in ids), "--reason", f"why {verb}").documents
    assert [(each["id"], each["status"], each["reason"]) for each in done] == [
        (id, status, f"why {verbs[-1]}") for id in ids
    ]


def test_reopen_sets_a_new_ttl(cli: Cli):
    id = cli.add("one")
    cli.json("resolve", id)
    (reopened,) = cli.json("reopen", id, "--ttl", "never").documents
    assert (reopened["status"], reopened["expires_at"]) == ("active", None)


def test_resolved_observations_are_cleared_and_keep_their_history(cli: Cli):
    ids = [cli.add("one"), cli.add("two")]
    cli.json("resolve", *ids)
    assert cli.json("clear-resolved", *(id[-8:] for id in ids)).document == {"page": cli.page, "cleared": ids}
    assert cli.json("list").documents == []
    assert [each["kind"] for each in cli.json("history", ids[0][-8:]).documents] == [
        "added", "status_changed", "cleared",
    ]  # fmt: skip
    gone = cli("show", ids[0])
    assert gone.code == 3
    assert f"see `scratchbus --page {cli.page} history {ids[0]}`" in gone.err


def test_a_hint_repeats_the_page_and_settings(cli: Cli, tmp_path: Path):
    id = cli.add()
    cli("resolve", id)
    settings = tmp_path / "the settings.yaml"
    settings.write_text("source: ada\n")
    err = cli("active", "--config", str(settings)).err
    program, *arguments = shlex.split(err.split("`")[1])
    assert (program, "--config" in arguments) == ("scratchbus", True)
    assert id in cli.anywhere(*arguments).out


def test_a_hint_contains_no_password():
    asked = Invocation()
    asked.url, asked.page = "redis://ada:secret@localhost/0", "a page"
    assert asked.hint("list") == "`scratchbus --url URL --page 'a page' list`"


def test_claim_next_filters_by_type_and_tag(cli: Cli):
    cli.add("small")
    wanted = cli.add("wanted", "--tag", "security", "--tag", "urgent")
    nothing = cli("claim-next", "--by", "executor-1", "--type", "risk_alert")
    assert (nothing.code, "is free; see" in nothing.err) == (3, True)
    taken = cli.json("claim-next", "--by", "executor-1", "--type", "observation", "--tag", "urgent").document
    assert (taken["id"], taken["claim"]["by"], taken["attempts"]) == (wanted, "executor-1", 1)
    out = cli("claim-next", "--by", "executor-2", "--ttl", "5m").out
    assert out.split()[1:3] == ["1", "executor-2"]
    assert "small" in out
    assert cli("claim-next").code == 2


def test_a_claim_is_protected_by_its_fence(cli: Cli):
    id = cli.add()
    claim = cli.json("claim", id, "--by", "executor-1", "--ttl", "5m").document
    assert (claim["id"], claim["by"]) == (id, "executor-1")
    assert cli("claim", id, "--by", "executor-2").code == 4
    assert cli("resolve", id).code == 4
    fence = str(claim["fence"])
    assert cli.json("claim", id, "--by", "executor-1", "--fence", fence).document["fence"] == claim["fence"]
    assert cli.json("link", id, "goal-17", "--fence", fence).document["links"] == ["goal-17"]
    assert cli.json("release", id, "--by", "executor-1").document.get("claim") is None
    events = cli.json("history", id).documents
    assert [(each["kind"], each["by"]) for each in events if each["kind"] != "linked"] == [
        ("added", "test"), ("claimed", "executor-1"), ("claimed", "executor-1"), ("released", "executor-1"),
    ]  # fmt: skip


def test_show_includes_the_history_on_request(cli: Cli):
    id = cli.add()
    shown = cli.json("show", id, "--history").document
    assert [each["kind"] for each in shown["history"]] == ["added"]
    assert "history" not in cli.json("show", id).document


def test_show_has_the_history_of_a_cleared_observation(cli: Cli):
    id = cli.add()
    cli.json("resolve", id)
    cli.json("clear-resolved", id)
    shown = cli.json("show", id[-8:], "--history").document
    assert (shown["id"], shown["page"]) == (id, cli.page)
    assert [each["kind"] for each in shown["history"]] == ["added", "status_changed", "cleared"]
    plain = cli("show", id, "--history")
    assert plain.code == 0
    assert "is no longer on page" in plain.err
    assert len(plain.out.splitlines()) == 3
    assert cli("show", id).code == 3


def test_refute_sends_dependent_observations_to_review(cli: Cli):
    wrong = cli.add("wrong")
    above = cli.add("above", "--evidence", wrong)
    assert cli("refute", wrong).code == 2
    done = cli.json("refute", wrong[-8:], "--reason", "a test").document
    assert (done["id"], done["reason_code"], done["reason"]) == (wrong, "refuted", "a test")
    assert cli.json("show", above).document["chain"] == [wrong]
    assert cli("refute", wrong, "--reason", "a test").code == 4
    assert f"{wrong} (refuted)" in cli("show", above).out
    assert "→ archived (refuted): a test" in cli("show", wrong, "--history").out
    assert f"→ pending_review: rests on {wrong}, which was refuted: a test" in cli("history", above).out


def test_evidence_of_another_page_is_shown_with_its_page(cli: Cli):
    there, here = cli.add("there", "--page", "desk"), cli.add("here")
    above = cli.add("above", "--evidence", there, "--evidence", here)
    assert f"{there} (on page desk), {here}" in " ".join(cli("show", above).out.split())
    assert cli("--page", "desk", "refute", there, "--reason", "a test").code == 0
    assert f"{there} (refuted, on page desk)" in " ".join(cli("show", above).out.split())


def test_a_trace_shows_the_evidence_for_an_action(cli: Cli):
    line = cli.add("line")
    alert = cli.add("alert", "--evidence", line, "--evidence", line)
    cli.json("link", alert, "goal-1", "--source", "executor")
    trace = cli.json("trace", "goal-1").document
    assert [(each["id"], each["by"]) for each in trace["motives"]] == [(alert, "executor")]
    assert trace["observations"].keys() == {alert, line}
    assert trace["observations"][alert]["evidence"] == [line]
    shown = cli("trace", "goal-1").out.splitlines()
    assert shown[0] == "goal-1"
    assert shown[1].startswith("linked by executor at ")
    assert [(alert in text, line in text) for text in shown[2:]] == [(True, False), (False, True)]
    assert shown[3].startswith("   └")
    assert cli("trace", "goal-2").code == 3


def test_tail_filters_the_log_and_starts_after_a_position(cli: Cli):
    first, second = cli.add("one"), cli.add("two", type="risk_alert")
    cli.json("resolve", first)

    def subjects(*options: str) -> list[tuple[str, str]]:
        return [(each["kind"], each["subject"]) for each in cli.json("tail", *options).documents]

    everything = [("added", first), ("added", second), ("status_changed", first)]
    assert subjects() == subjects("--after", "1h") == everything
    assert subjects("--type", "risk_alert") == [("added", second)]
    assert subjects("--kind", "status_changed", "--kind", "linked") == [("status_changed", first)]
    position = cli.json("tail").documents[0]["position"]
    assert subjects("--after", position) == everything[1:]
    assert subjects("--after", "now") == []


def test_tail_shows_every_page_unless_one_is_named(cli: Cli):
    here = cli.add()
    there = cli.anywhere("add", "observation", "x", "--source", "me", "--json").document
    assert there["page"] == "main"

    def seen(done: Result) -> set[str]:
        return {each["subject"] for each in done.documents}

    assert seen(cli.json("tail")) == {here}
    assert {here, there["id"]} <= seen(cli.anywhere("--json", "tail"))


def test_common_options_work_before_and_after_the_command(cli: Cli):
    id = cli.add()
    before = cli("--json", "show", id)
    after = cli("show", "--json", id)
    assert before.document == after.document
    assert cli("--page", "elsewhere", "list", "--page", cli.page, "--json").document["id"] == id
    assert cli("--bus", "another", "--json", "list").documents == []
    assert cli("--source", "me", "add", "observation", "x", "--json").document["source"] == "me"


def test_the_source_comes_from_the_environment_or_the_settings(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("SCRATCHBUS_SOURCE", "env")
    assert cli.json("add", "observation", "x").document["source"] == "env"
    monkeypatch.delenv("SCRATCHBUS_SOURCE")
    settings = tmp_path / "settings.yaml"
    settings.write_text("source: file\n")
    assert cli.json("add", "observation", "x", "--config", str(settings)).document["source"] == "file"


def test_the_types_are_listed_checked_and_pushed(cli: Cli, tmp_path: Path):
    own = ("--bus", "types")
    file = tmp_path / "types.yaml"
    file.write_text(shipped("observation_types.yaml").read_text() + _TICKETS.partition("types:")[2])
    assert "ticket" in cli.json("types", "check", str(file)).document["types"]
    names = [each["name"] for each in cli.json(*own, "types", "list").documents]
    assert names[0] == "risk_alert"
    assert "ticket" not in names
    pushed = cli.json(*own, "types", "push", str(file)).document
    assert (pushed["changed"], pushed["added"], pushed["version"]) == (True, ["ticket"], 1)
    assert cli.json(*own, "types", "push", str(file)).document["changed"] is False
    file.write_text(cli(*own, "types", "show").out)
    assert cli.json(*own, "types", "push", str(file)).document["changed"] is False
    first = cli.json(*own, "types", "list").documents[0]
    assert (first["name"], first["priority"], first["default_ttl"]) == ("ticket", 99, "1d")
    assert first["lifecycle"]["transitions"]["resolved"] == ["active", "archived", "pending_review"]
    cli.json(*own, "add", "ticket", "Do it", "--source", "me")
    assert cli(*own, "types", "push", str(shipped("observation_types.yaml"))).code == 4


def test_types_show_prints_the_pushed_file(cli: Cli, tmp_path: Path):
    file, own = tmp_path / "types.yaml", ("--bus", "exact")
    text = "types:\n  ticket:\n    priority: 1\n    description: |+\n      To do\n\n\n"
    file.write_text(text)
    cli.json(*own, "types", "push", str(file))
    shown = cli(*own, "types", "show").out
    assert shown == text
    assert cli.json(*own, "types", "show").document["text"] == text


def test_status_shows_where_the_engine_is(cli: Cli, home: Path):
    for _ in range(9):  # status names only the busiest pages
        cli.add()
    status = cli.json("status").document
    assert (status["url"], status["directory"]) == (f"embedded:{home}", str(home))
    assert Path(status["socket"]).is_socket()
    assert status["engine_pid"] > 0
    assert cli.page in [each["page"] for each in status["pages"]]


def test_status_shows_how_to_connect_to_this_bus(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch):
    cli.add()
    shown = cli("--bus", "other", "status").out
    assert f"Bus.connect('embedded:{home}', bus='other')\n" in shown
    assert f"scratchbus --url embedded:{home} --bus other active\n" in shown
    monkeypatch.setenv("SCRATCHBUS_HOME", str(home))
    assert (
        "Bus.connect(bus='other')\n             scratchbus --bus other active\n" in cli("--bus", "other", "status").out
    )
    assert "Bus.connect()\n             scratchbus active\n" in cli("status").out
    url = f"unix://{home}/engine.sock?db=0&socket_timeout=9"
    assert f"scratchbus --url '{url}' active\n" in cli("--url", url, "status").out


def test_status_of_a_bus_without_pages_names_it(cli: Cli):
    cli("active")  # starts the engine, which `status` does not
    shown = cli("--bus", "mian", "status").err
    assert "Bus mian has no page yet; check its name, or add an observation with `scratchbus --bus mian" in shown


def test_stop_ends_the_engine_until_the_next_command(cli: Cli, tmp_path: Path):
    url = ("--url", f"embedded:{tmp_path / 'own'}")
    try:
        assert cli.json(*url, "stop").document["stopped"] is False
        id = cli.json(*url, "add", "observation", "kept", "--source", "me").document["id"]
        assert cli.json(*url, "stop").document == {"directory": str(tmp_path / "own"), "stopped": True}
        assert not (tmp_path / "own" / "engine.pid").exists()
        assert cli.json(*url, "show", id).document["content"] == "kept"
    finally:
        cli(*url, "stop")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(cli: Cli, shell: str):
    done = cli("completion", shell)
    assert done.code == 0
    assert "_SCRATCHBUS_COMPLETE" in done.out


def test_completion_offers_commands_types_and_kinds(cli: Cli):
    def offered(line: str) -> set[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_SCRATCHBUS_COMPLETE": "bash_complete"}
        return {each.partition(",")[2] for each in cli.process(**words).out.splitlines()}

    assert offered("scratchbus cl") == {"claim", "claim-next", "clear-resolved"}
    assert offered("scratchbus add risk") == {"risk_alert"}
    assert "status_changed" in offered("scratchbus tail --kind s")


@pytest.mark.parametrize(("command", "default"), [("tail", "all"), ("setup", "by the directory")])
def test_a_command_whose_page_is_not_from_the_environment_says_so(cli: Cli, command: str, default: str):
    shown = " ".join(cli.anywhere(command, "--help").out.split())
    assert shown.count("--page NAME") == 1
    assert f"[default: {default}]" in shown.partition("--page NAME")[2].partition(" --")[0]
    assert "[$SCRATCHBUS_PAGE" not in shown


def test_the_page_may_come_from_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    id = cli.add()
    monkeypatch.setenv("SCRATCHBUS_PAGE", cli.page)
    assert [each["id"] for each in cli.anywhere("active", "--json").documents] == [id]
    assert cli.anywhere("--page", f"{cli.page}-other", "active", "--json").documents == []
    monkeypatch.setenv("SCRATCHBUS_PAGE", "no page")
    assert "page" in cli.anywhere("active").err
    elsewhere = cli.anywhere("tail", "--after", "now", "--json")  # it reads all pages without --page
    assert (elsewhere.code, elsewhere.err) == (0, "")
    monkeypatch.setenv("SCRATCHBUS_PAGE", "")
    assert cli.anywhere("active").code == 0
