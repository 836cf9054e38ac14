"""The private scratchpad of an agent, kept between runs."""

import json
from unittest.mock import Mock

import pytest

from scratchbus import AsyncBus
from scratchbus.errors import ScratchbusError, SettingsError, TooLarge, Unauthorized
from tests.inspection import log_length

ASKS = {
    "read": lambda pad: pad.read(),
    "whoami": lambda pad: pad.whoami(),
    "history": lambda pad: pad.history(),
    "as_of": lambda pad: pad.as_of("0-0"),
}


@pytest.fixture
def analyst(connect):
    return connect("analyst")


@pytest.fixture
def pad(analyst):
    return analyst.scratchpad("analyst")


def test_scratchpad_displays_for_subagents(pad):
    assert "## Your Scratchpad\n\n_Your scratchpad is empty." in pad.whoami()
    pad.write("The bank answers on Mondays only.")
    assert pad.whoami().endswith("## Your Scratchpad\n\nThe bank answers on Mondays only.")
    assert "analyst" in pad.whoami()


def test_scratchpad_is_hidden_for_person_users(connect, pad):
    pad.write("secret")
    for agent in ("alice", "analyst"):
        person = connect("alice", kind="person").scratchpad(agent)
        assert "Scratchpad" not in person.whoami()
        assert "alice" in person.whoami()
        assert person.read() == person.as_of(pad.history()[-1].position) == ""
        assert person.history() == []


def test_update_action_succeeds_for_subagents(connect, pad):
    assert pad.read() == ""
    pad.write("first")
    pad.write("second")
    assert pad.read() == connect("analyst").scratchpad("analyst").read() == "second"


@pytest.mark.parametrize("kind", ["person", "daemon"])
def test_update_action_is_403_for_non_subagents(connect, kind):
    bus = connect("alice", kind=kind)
    with pytest.raises(Unauthorized, match=r"^403 Unauthorized: "):
        bus.scratchpad("alice").write("x")
    assert not bus.scratchpad("alice").accept_reply('{"scratchpad": "x"}')
    assert log_length(bus) == 0


def test_max_length_is_validated(bus, pad):
    pad.write("é" * 10_000)
    with pytest.raises(TooLarge, match="Scratchpad content exceeds maximum length of 10000 characters"):
        pad.write("x" * 10_001)
    assert pad.read() == "é" * 10_000


@pytest.mark.parametrize("client", [("reviewer", "subagent"), ("analyst", "daemon"), (None, "subagent")])
@pytest.mark.parametrize("ask", ASKS)
def test_other_clients_cannot_read_a_scratchpad(connect, pad, client, ask):
    pad.write("mine")
    source, kind = client
    with pytest.raises(Unauthorized, match=r"^403 Unauthorized: ") as refused:
        ASKS[ask](connect(source, kind=kind).scratchpad("analyst"))
    assert (refused.value.agent, refused.value.source) == ("analyst", source)
    assert "\n" not in str(refused.value)


def test_another_agent_cannot_write_a_scratchpad(connect, pad):
    pad.write("mine")
    other = connect("reviewer").scratchpad("analyst")
    with pytest.raises(Unauthorized):
        other.write("theirs")
    reply = other.accept_reply('{"scratchpad": "theirs"}')
    assert not reply
    assert reply.error.startswith("403 Unauthorized: ")
    assert pad.read() == "mine"


def test_an_unknown_kind_is_refused(connect):
    with pytest.raises(SettingsError, match="kind"):
        connect("analyst", kind="robot")


def test_blank_content_clears_the_scratchpad(pad):
    for blank in ("", " \n\t"):
        pad.write("something")
        pad.write(blank)
        assert pad.read() == ""
        assert "_Your scratchpad is empty." in pad.whoami()


@pytest.mark.parametrize(
    ("reply", "becomes"),
    [
        ('```json\n{"scratchpad": "new"}\n```', "new"),
        ('{"scratchpad": "new"}', "new"),
        (json.dumps({"scratchpad": "x" * 50_000}), "x" * 10_000),
    ],
)
def test_a_reply_replaces_the_scratchpad(pad, reply, becomes):
    pad.write("old")
    accepted = pad.accept_reply(reply)
    assert accepted
    assert (accepted.content, accepted.error) == (becomes, None)
    assert pad.read() == becomes


@pytest.mark.parametrize("value", ["null", '""', '" "'])
def test_an_empty_reply_keeps_the_scratchpad(bus, pad, value):
    pad.write("old")
    length = log_length(bus)
    accepted = pad.accept_reply(f'```json\n{{"scratchpad": {value}}}\n```')
    assert (bool(accepted), accepted.content, accepted.error) == (False, None, None)
    assert (pad.read(), log_length(bus)) == ("old", length)


def test_the_error_of_a_reply_is_never_empty(pad, monkeypatch):
    monkeypatch.setattr(pad, "write", Mock(side_effect=RuntimeError))
    assert pad.accept_reply('{"scratchpad": "x"}').error == "RuntimeError"


@pytest.mark.parametrize("reply", ["", "nothing to add", "{", '{"scratchpad": "cut', None, 7, {"scratchpad": "x"}])
def test_an_invalid_reply_keeps_the_scratchpad_and_does_not_raise(pad, reply):
    pad.write("old")
    accepted = pad.accept_reply(reply)
    assert not accepted
    assert accepted.error
    assert pad.read() == "old"


def test_accept_reply_does_not_raise_without_an_engine(analyst, pad):
    analyst.close()
    accepted = pad.accept_reply('{"scratchpad": "x"}')
    assert not accepted
    assert "closed" in accepted.error


def test_a_retried_write_changes_nothing(analyst, pad):
    pad.write("first", event_id="mine")
    pad.write("second")
    length = log_length(analyst)
    pad.write("first", event_id="mine")
    assert (pad.read(), log_length(analyst)) == ("second", length)


def test_past_scratchpads_can_be_read(pad):
    pad.write("first")
    moment = pad.history()[-1].position
    pad.write("second")
    assert (pad.as_of(moment), pad.as_of(pad.history()[-1].at)) == ("first", "second")
    assert [(event.kind, event.content) for event in pad.history()] == [
        ("scratchpad_written", "first"),
        ("scratchpad_written", "second"),
    ]


def test_an_agent_can_ask_for_its_end_of_run_prompt(pad):
    text = pad.end_of_run_prompt("Count the beans", "completed", "There are 42.", 3)
    assert "**Steps taken**: 3" in text


@pytest.mark.parametrize("agent", ["", "no spaces please", None, 7])
def test_an_invalid_agent_name_is_refused(analyst, agent):
    with pytest.raises(ScratchbusError):
        analyst.scratchpad(agent)


@pytest.mark.anyio
async def test_async_scratchpads_behave_the_same(engine, bus_name, pad):
    async with AsyncBus.connect(engine.url, source="analyst", bus=bus_name, shards=engine.shards) as bus:
        mine = bus.scratchpad("analyst")
        await mine.write("first")
        assert await mine.accept_reply('{"scratchpad": "second"}')
        assert not await mine.accept_reply("nothing to add")
        assert await mine.read() == pad.read() == "second"
        assert await mine.whoami() == pad.whoami()
        assert await mine.as_of((await mine.history())[0].position) == "first"
        assert await mine.end_of_run_prompt("t", "error", "s", 1) == pad.end_of_run_prompt("t", "error", "s", 1)
        with pytest.raises(Unauthorized):
            await bus.scratchpad("reviewer").read()
