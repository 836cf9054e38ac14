"""Scopes in the view Memory: facts over time, preferences, and recall."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page as Window
from playwright.sync_api import expect

from scratchbus import Bus
from tests.browser.conftest import Console, Opened, address_of
from tests.browser.serving import Served
from tests.browser.test_shell import violations
from tests.waiting import eventually


def know(bus: Bus, scope: str, url: str) -> str:
    """Fill a scope with facts, two of which contest each other, and preferences; return the id of an ended fact."""
    ground = bus.page(f"{scope}:ground").add("observation", "the wiki says Node 20")
    facts = bus.facts(scope)
    old = facts.assert_fact(
        "Heron", "runs_on", "Node 20", valid_at="2025-03-01", source_text="we use Node 20", evidence=[ground.id]
    )
    facts.assert_fact("Heron", "runs_on", "Node 24", valid_at="2026-02-01")
    facts.assert_fact("Heron", "uses", "Docker")
    facts.assert_fact("Docker", "depends_on", "containerd")
    facts.assert_fact("Heron", "owner", "Ann", valid_at="2026-02-01")
    with Bus.connect(url, source="bob") as other:
        other.facts(scope).assert_fact("Heron", "owner", "Bob", valid_at="2026-02-01")
    preferences = bus.preferences(scope)
    preferences.remember("quotes in JS", "always use double quotes", said_by="Ada")
    preferences.remember("commit messages", "a subject of 72 characters")
    return old.id


def objects(window: Window) -> list[str]:
    """Return the objects of the facts in the table, sorted."""
    return sorted(window.locator(".facts-table .table-body .cell-object > .excerpt").all_inner_texts())


def press(window: Window, key: str) -> bool:
    """Press a key."""
    window.keyboard.press(key)
    return True


@pytest.mark.slow
def test_facts_are_filtered_explained_and_retracted(console: Console, bus: Bus) -> None:
    """Contested facts are marked; an ended one shows its evidence; a retracted one no longer contests."""
    old = know(bus, "facts-flow", console.served.url)
    window = console.open("#/memory")
    window.get_by_role("link", name="facts-flow", exact=True).click()
    eventually(lambda: objects(window) == ["Ann", "Bob", "Docker", "Node 24", "containerd"], "five facts")
    expect(window.locator(".table-row.is-contested")).to_have_count(2)
    window.keyboard.press("/")
    window.keyboard.type("subject:her docker")
    eventually(lambda: objects(window) == ["Docker"], "the matching fact")
    window.get_by_label("Clear the filter").click()
    window.get_by_label("True at").fill("2025-06-01")
    window.keyboard.press("Enter")
    eventually(lambda: "Node 20" in objects(window), "the fact valid then")
    window.get_by_role("row", name=re.compile("Node 20")).click()
    fact = window.locator(".fact")
    expect(fact.locator(".fact-span")).to_contain_text(re.compile("ended.*2025-03-01.*2026-02-01"))
    expect(fact.locator(".fact-text")).to_have_text("we use Node 20")
    expect(fact.locator(".timeline-row")).to_have_count(2)
    expect(fact.locator(".graph-entity")).to_have_text([re.compile("^Heron"), re.compile("^Node 20")])
    assert f"fact={old}" in address_of(window)
    fact.locator(".observation-badge").click()
    expect(window.locator(".story-content")).to_have_text("the wiki says Node 20")
    window.go_back()
    window.get_by_label("True at the moment shown").click()
    window.get_by_role("row", name=re.compile("Bob")).click()
    expect(fact.locator(".fact-contest")).to_contain_text("Ann")
    window.keyboard.press("x")
    window.get_by_label("Why is it not true?").fill("he left in January")
    window.get_by_role("button", name="Retract", exact=True).click()
    expect(fact).to_contain_text("he left in January")
    expect(window.locator(".table-row.is-contested")).to_have_count(0)
    assert [each.object for each in bus.facts("facts-flow").query("Heron", "owner")] == ["Ann"]


@pytest.mark.browser
def test_past_facts_are_shown_read_only(console: Console, bus: Bus) -> None:
    """At a moment of the past the facts are those known then, without forms."""
    old = know(bus, "facts-past", console.served.url)
    first = bus.facts("facts-past").why(old).events[0].position
    window = console.open(f"#/memory?scope=facts-past&fact={old}&at={first}")
    eventually(lambda: objects(window) == ["Node 20"], "the fact known then")
    expect(window.locator(".fact-span")).to_contain_text("open")
    expect(window.get_by_role("button", name="Retract …")).to_have_count(0)
    expect(window.get_by_role("button", name="Assert")).to_be_disabled()
    window.keyboard.press("l")
    expect(window.locator(".fact-span")).to_contain_text("ended")
    expect(window.get_by_role("button", name="Retract …")).to_be_visible()


@pytest.mark.browser
def test_neighbours_are_shown_as_a_graph(console: Console, bus: Bus) -> None:
    """A node links to its neighbours; a greater distance shows more nodes; a new fact appears by itself."""
    know(bus, "facts-graph", console.served.url)
    fact = bus.facts("facts-graph").query("Heron", "uses")[0]
    window = console.open(f"#/memory?scope=facts-graph&fact={fact.id}")
    nodes = window.locator(".graph-entity")
    expect(nodes).to_have_count(3)
    window.get_by_label("Facts away").select_option("2")
    expect(nodes).to_have_count(4)
    window.get_by_title("containerd", exact=True).click()
    expect(window.get_by_role("heading", name=re.compile("Around containerd"))).to_be_visible()
    window.keyboard.press("?")
    expect(window.get_by_role("dialog")).to_contain_text("Assert a fact")
    window.keyboard.press("Escape")
    window.keyboard.press("a")
    for label, text in (("Subject", "containerd"), ("Relation", "depends on"), ("Object", "Linux")):
        window.get_by_label(label, exact=True).fill(text)
    window.get_by_role("dialog").get_by_role("button", name="Assert").click()
    expect(window.get_by_title("Linux", exact=True)).to_be_visible()
    assert [each.object for each in bus.facts("facts-graph").query("containerd", "depends_on")] == ["Linux"]


@pytest.mark.slow
def test_preferences_are_added_edited_and_forgotten(console: Console, bus: Bus) -> None:
    """An edit that conflicts with a newer version shows both, and can continue; the history keeps all versions."""
    know(bus, "wishes", console.served.url)
    preferences = bus.preferences("wishes")
    console.sees_failures = True
    window = console.open("#/memory?scope=wishes&tab=preferences")
    expect(window.locator(".note")).to_have_count(2)
    window.get_by_role("button", name="Edit quotes in JS").click()
    window.get_by_label("How it is to be done").fill("always use single quotes")
    preferences.remember("quotes in JS", "always use double quotes, but not in JSON")
    window.get_by_role("button", name="Save").click()
    expect(window.get_by_text("Someone else was faster.")).to_be_visible()
    expect(window.locator(".form-moved ins")).to_have_text("single")
    window.get_by_role("button", name="Go on with version 2").click()
    window.get_by_role("button", name="Save").click()
    expect(window.locator(".note", has_text="quotes in JS")).to_contain_text("single quotes")
    window.keyboard.press("a")
    window.get_by_label("What it is about").fill("Commit message")
    window.get_by_label("How it is to be done").fill("in English")
    window.get_by_role("button", name="Save").click()
    expect(window.locator(".form-moved del").first).to_be_visible()
    window.get_by_role("button", name="Cancel").click()
    window.get_by_role("button", name="Forget commit messages").click()
    window.get_by_role("dialog").get_by_role("button", name="Forget").click()
    expect(window.locator(".note")).to_have_count(1)
    window.get_by_role("button", name="History of quotes in JS").click()
    expect(window.locator("dialog .versions li")).to_have_count(3)
    assert [each.text for each in preferences.list()] == ["always use single quotes"]
    window.get_by_role("button", name="Go to this moment").first.click()
    expect(window.locator(".note")).to_contain_text("always use double quotes")
    expect(window.get_by_role("button", name=re.compile("^Edit"))).to_have_count(0)


@pytest.mark.browser
def test_recall_results_show_their_reasons(console: Console, bus: Bus) -> None:
    """Results come from the chosen memories, with reasons, and link to them."""
    know(bus, "asked", console.served.url)
    bus.notes("asked-s").add("The database moved to Postgres 17")
    window = console.open("#/memory?scope=asked&tab=recall&in=scope:asked+session:asked-s")
    asked = window.get_by_label("Ask the memories")
    eventually(lambda: press(window, "/") and asked.evaluate("it => it === document.activeElement"), "the key")
    window.keyboard.type("what is Heron running on")
    expect(window.locator(".results li").first).to_contain_text("Node 24")
    expect(window.locator(".reasons").first).to_contain_text("its words: heron")
    asked.fill("databases")
    expect(window.locator(".results > li")).to_have_count(1)
    window.locator(".result-head a").click()
    expect(window.locator(".note-content")).to_have_text("The database moved to Postgres 17")


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_scope_passes_axe(open_console: Opened, served: Served, bus: Bus, scheme: str, width: int) -> None:
    """Checks every part of a scope, a fact, and an empty scope; at 360 px the page does not scroll sideways."""
    scope = f"axe-{scheme}-{width}"
    old = know(bus, scope, served.url)
    console = open_console(served, scheme=scheme, width=width)
    for address, sign in (
        (f"scope={scope}", ".table-row.is-contested"),
        (f"scope={scope}&fact={old}&depth=2", ".graph-entity"),
        (f"scope={scope}&tab=preferences", ".note"),
        (f"scope={scope}&tab=recall&ask=heron", ".results li"),
        (f"scope={scope}-empty", ".empty"),
        (f"scope={scope}-empty&tab=preferences", ".empty"),
    ):
        window = console.open(f"#/memory?{address}")
        expect(window.locator(sign).first).to_be_visible()
        assert violations(window) == [], address
        assert window.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
@pytest.mark.parametrize(
    ("at", "position", "expected"),
    [
        ("2/1795386059871-9", "2/1795386059871-10", False),
        ("2/1795386059871-9", "1/1795386059000-700", True),
        ("2/1795386059871-900", "1/1795386060000-7", False),
    ],
)
def test_events_of_a_fact_are_known_by_the_order_within_their_shard(
    console: Console, at: str, position: str, expected: bool
) -> None:
    """The moment may be an event of another shard, which counts by its time."""
    console.sees_failures = True  # the served bus has one shard, so it knows nothing of these moments
    window = console.open(f"#/memory?at={at}")
    found = window.evaluate(
        "position => import('/console/views/memory/scope.js').then(m => m.wasKnown(position))", position
    )
    assert found is expected
