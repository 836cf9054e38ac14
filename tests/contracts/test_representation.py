"""What a shell shows: `repr` and `dir`."""

from __future__ import annotations

import re

import pytest

from scratchbus import AsyncBus, Bus, Page, document_of
from scratchbus.adapters.langgraph import ScratchbusStore
from scratchbus.adapters.memory_tool import MemoryTool
from scratchbus.domain.observation import SPECIFIED

pytestmark = pytest.mark.engines("memory")


def _names(shown: str) -> list[str]:
    """Return the names of the fields in a representation."""
    return re.findall(r"(?<=[(\s])([a-z_]+)=", re.sub(r"'[^']*'|\([^()]*\)(?=, |\)$)", "''", shown))


def test_an_observations_repr_has_specified_fields_first_and_no_none(page: Page):
    new = page.add("reminder", "Call the bank", source="me", remind_at="2030-01-31T12:00:00Z")
    names = _names(repr(new))
    assert names[:11] == [name for name in SPECIFIED if name not in ("owner", "expires_at")]
    assert names[11:15] == ["page", "version", "position", "priority"]
    assert "remind_at=2030-01-31T12:00:00.000Z" in repr(new)
    assert f"position={new.position}," in repr(new)
    page.claim(new.id, by="me")
    for each in (new, *page.list(), *page.history(new.id)):
        assert not re.search(r"None|datetime|Position\(|TzInfo", repr(each)), repr(each)
    assert document_of(new)["owner"] is None  # only `repr` leaves it out


def test_an_events_repr_has_its_position_and_fields(page: Page):
    id = page.add("observation", "red", source="me", tags=["ci"]).id
    page.resolve(id, reason="green")
    added, resolved = page.history(id)
    assert re.fullmatch(
        rf"Added\(position=[\d/-]+, at=20[\d:.TZ-]+, by='\w+', page='{page.name}', subject='{id}', type='observation',"
        r" content='red', .*tags=\['ci'\], .*source='me', .*id='\S+'\)",
        repr(added),
    ), repr(added)
    assert "status='resolved', status_class='closed', reason_code='resolved', reason='green'" in repr(resolved)


def test_the_repr_of_a_bus_or_page_has_its_location(bus: Bus):
    assert re.fullmatch(r"<Bus '\S+' at memory://\S+, source 'tester'>", repr(bus))
    assert repr(bus.page("user:42")) == f"<Page 'user:42' of {bus!r}>"
    assert repr(AsyncBus.connect("memory://repr", source="me")).startswith("<AsyncBus 'scratchbus' at memory://repr")


def test_a_jobs_repr_has_its_observation_attempt_and_claim(page: Page):
    id = page.add("risk_alert", "fraud", source="me").id
    job = page.claim_next()
    assert re.fullmatch(
        rf"<Job {id} risk_alert 'fraud' of page '{page.name}', attempt 1, fence 1, claimed until 20\S+Z>", repr(job)
    )


def test_the_repr_of_a_memory_has_its_page_and_bus(bus: Bus):
    for handle, location in (
        (bus.notes("s1"), "Notes on page 'session:s1'"),
        (bus.notepad("s1"), "Notepad on page 'session:s1'"),
        (bus.facts("shop"), "Facts on page 'knowledge:shop'"),
        (bus.items("agents"), "Items on page 'store:agents'"),
        (bus.files("s1"), "Files of session 's1'"),
        (bus.context, "Contexts"),
        (MemoryTool(bus, "shop"), "MemoryTool with <Texts on page 'knowledge:shop'"),
        (ScratchbusStore(bus), "ScratchbusStore with <Items on page 'store:default'"),
        (bus.subscribe("mailer"), "Subscription 'mailer'"),
        (bus.work("repairs"), "Work 'repairs'"),
    ):
        assert repr(handle).rstrip(">") == f"<{location} of {bus!r}".rstrip(">")


def test_the_repr_of_a_view_says_whether_it_is_open(bus: Bus):
    view = bus.view("main")
    assert repr(view) == "<View of page 'main', not open>"
    with view:
        assert repr(view) == "<View of page 'main'>"


def test_a_past_pages_repr_has_its_moment_and_excluded_sources(bus: Bus, page: Page):
    page.add("observation", "red", source="ci")
    end = bus.position()
    past, silent = page.as_of(end), page.as_of(end, without_sources=["probe", "ci"])
    assert re.fullmatch(rf"<PastPage '{page.name}' at 20[\d:.T-]+Z, position {end}>", repr(past))
    assert repr(silent).endswith(f", position {end}, without ci, probe>")


def test_a_deliverys_repr_has_its_event(bus: Bus, page: Page):
    page.add("observation", "red", source="ci")
    with bus.subscribe("mailer", kinds=["added"]) as deliveries:
        delivery = next(deliveries)
        assert repr(delivery) == f"<Delivery of {delivery.event!r}, attempt 1>"


def test_a_runs_repr_has_its_task_and_outcome():
    with (
        Bus.connect("memory://repr-run", source="analyst") as bus,
        bus.run("analyst", "Fix the totals", ask=lambda prompt: "null") as run,
    ):
        run.step("look")
        run.max_steps(1)
        assert repr(run) == f"<Run of 'analyst': 'Fix the totals', {run.outcome}, steps 1>"


def test_a_memorys_repr_has_its_own_fields_first_and_no_none(bus: Bus):
    note = bus.notes("s1").add("The bank answers on Mondays", tags=["bank"]).note
    fact = bus.facts("shop").assert_fact("Ada", "works_on", "shop")
    session = bus.end_session("s1")
    for each in (
        note,
        fact,
        session,
        bus.preferences("ada").remember("quotes", "double"),
        bus.turns("s2").append("user", "hi"),
    ):
        assert not re.search(r"None|datetime|Position\(|TzInfo|damaged", repr(each)), repr(each)
        assert _names(repr(each))[0] == "id"
        assert _names(repr(each))[-4:] == ["version", "created_at", "updated_at", "position"]
    assert repr(note).startswith(f"Note(id='{note.id}', content='The bank answers on Mondays', tags=['bank'], ")
    assert "damaged=True" in repr(note.model_copy(update={"damaged": True}))


def test_dir_of_a_document_leaves_out_inner_names(bus: Bus, page: Page):
    observation = page.add("observation", "red", source="ci")
    note = bus.notes("s1").add("green").note
    for each, some in (
        (observation, {"content", "position", "added", "payload", "is_open"}),
        (note, {"content", "id"}),
    ):
        names = set(dir(each))
        assert some | {"created_at", "version"} <= names
        assert not names & {"shown", "ms", "seq", "shard", "added_ms", "added_seq"}
        assert not [name for name in names if name.startswith("_")]


def test_dir_shows_public_names_only(bus: Bus, page: Page):
    for each, some in ((bus, {"page", "events", "on", "close"}), (page, {"add", "active", "name"})):
        names = set(dir(each))
        assert some <= names
        assert not [name for name in names if name.startswith("_")]
        assert not names & {"core", "converse", "feeds", "keeper"}
        assert all(hasattr(type(each), name) or name in vars(each) for name in names)
