"""The view Story: one observation, with its evidence, its events and its consequences."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from playwright.sync_api import Page as Window
from playwright.sync_api import expect

from scratchbus import Bus, NewObservation, because
from tests.browser.conftest import Console, Opened, settle
from tests.browser.serving import Served
from tests.browser.test_shell import violations


class Case(NamedTuple):
    """Ids of observations, each of which rests on the one before."""

    ground: str
    pattern: str
    alert: str
    advice: str


def write_chain(bus: Bus, name: str) -> Case:
    """Write a chain of evidence that is read, acted on, and refuted at its start."""
    page = bus.page(name)
    ground = page.add("observation", "The card was used in Lagos")
    pattern = page.add("pattern_detected", "Two countries within ten minutes", evidence=[ground.id])
    alert = page.add("risk_alert", "The card looks stolen", evidence=[pattern.id], tags=["card"], confidence=0.5)
    advice = page.add("action_suggestion", "Freeze the card", evidence=[alert.id])
    bus.context.assemble(session="story", agent="daemon", page=name, record=True)
    page.update(alert.id, content="The card looks stolen, says the bank", confidence=0.75)
    page.link(alert.id, "ticket-17")
    page.refute(ground.id, reason="the terminal had a wrong clock")
    return Case(ground.id, pattern.id, alert.id, advice.id)


def life(window: Window) -> list[str]:
    """Return the names of the events in the timeline."""
    return window.locator(".life-step .life-head strong").all_inner_texts()


def node(window: Window, content: str) -> str:
    """Return the mark of a node in the graph."""
    return window.locator(".graph-node", has_text=content).locator(".graph-mark").inner_text()


@pytest.mark.slow
def test_a_story_shows_events_evidence_and_readers(console: Console, bus: Bus) -> None:
    """Events with their changes, evidence, readers and their next actions, and pulled-back observations."""
    case = write_chain(bus, "story:whole")
    window = console.open(f"#/story?page=story:whole&selected={case.alert}")
    expect(window.locator(".life-step")).to_have_count(4)
    assert life(window) == ["added", "changed", "led to an action", "sent to review"]
    changed = window.locator(".life-step").nth(1)
    assert changed.locator("ins").all_inner_texts() == [", says the bank", "0.75"]
    assert changed.locator("del").all_inner_texts() == ["0.5"]
    expect(window.locator(".graph-node")).to_have_count(4)
    assert node(window, "Lagos") == "refuted"
    assert node(window, "Freeze") == "pulled back"
    expect(window.locator(".graph-edges path.pulled-back")).to_have_count(3)
    expect(window.locator(".graph .graph-action")).to_have_text(re.compile("ticket-17"))
    expect(window.locator(".reader")).to_contain_text("session story")
    expect(window.locator(".next")).to_contain_text("ticket-17")
    elsewhere = bus.page("story:elsewhere").add("observation", "Another card")
    bus.page("story:elsewhere").link(elsewhere.id, "ticket-18")
    window.reload()
    badge = window.locator(".next li", has_text="ticket-18").get_by_role("link")
    expect(badge).to_contain_text("from the page story:elsewhere")
    expect(badge).to_have_attribute("href", re.compile(f"page=story(:|%3A)elsewhere.*selected={elsewhere.id}"))
    window.locator(".graph-node", has_text="Lagos").click()
    expect(window.locator(".story-content")).to_have_text("The card was used in Lagos")
    expect(
        window.locator("section", has_text="Pulled back by refuting it: 3 observations").locator(".pulled")
    ).to_have_count(3)


@pytest.mark.slow
def test_a_past_story_hides_later_events(console: Console, bus: Bus) -> None:
    """In the past, later events and observations are hidden; live, new ones appear by themselves."""
    case = write_chain(bus, "story:past")
    page = bus.page("story:past")
    then = page.history(case.pattern)[0].position
    window = console.open(f"#/story?page=story:past&selected={case.pattern}&at={then}")
    expect(window.locator(".life-step")).to_have_count(1)
    expect(window.locator(".graph-node")).to_have_count(2)
    expect(window.locator(".graph-mark")).to_have_count(0)
    expect(window.get_by_role("button", name="Refute")).to_have_count(0)
    window.keyboard.press("l")
    expect(window.locator(".graph-node")).to_have_count(4)
    page.update(case.pattern, confidence=0.25)
    expect(window.locator(".life-step")).to_have_count(3)
    page.add("observation", "rests on the advice", evidence=[case.advice])
    expect(window.locator(".graph-node")).to_have_count(5)


@pytest.mark.browser
def test_long_contents_leave_room_for_the_type(console: Console, bus: Bus) -> None:
    """Signs of line breaks are shown whole or not at all, wherever the content is cut."""
    bus.page("story:long").add("contextual_insight", "many\nlines\n" * 200)
    window = console.open("#/story?page=story:long")
    kind = window.locator(".observation-badge .type")
    expect(kind).to_have_text("contextual_insight")
    assert kind.evaluate("each => each.scrollWidth <= each.clientWidth")
    sign = window.locator(".observation-badge .excerpt .control").first
    assert sign.evaluate("each => getComputedStyle(each).display") == "inline-block"  # Chromium hides one that is cut


@pytest.mark.browser
def test_the_graph_works_by_keyboard(console: Console, bus: Bus) -> None:
    """A focused node scrolls into view; Enter opens its story; keys zoom."""
    page = bus.page("story:keys")
    ids = [page.add("observation", "step 0").id]
    for step in range(1, 14):
        ids.append(page.add("observation", f"step {step}", evidence=[ids[-1]]).id)
    window = console.open(f"#/story?page=story:keys&selected={ids[6]}")
    expect(window.locator(".graph-node")).to_have_count(14)
    box = window.locator(".graph-box").bounding_box()
    assert box is not None
    for step in (0, 13):
        window.locator(".graph-node", has_text=re.compile(f"step {step}$|step {step},")).focus()
        focused = window.locator(".graph-node:focus").bounding_box()
        assert focused is not None
        assert focused["x"] >= box["x"] - 1
        assert focused["x"] + focused["width"] <= box["x"] + box["width"] + 1
    window.keyboard.press("Enter")
    expect(window.locator(".story-content")).to_have_text("step 13")
    window.locator(".story").focus()
    before = window.locator(".graph-node").first.bounding_box()
    window.keyboard.press("-")
    after = window.locator(".graph-node").first.bounding_box()
    assert before is not None
    assert after is not None
    assert after["width"] < before["width"]


@pytest.mark.browser
def test_a_story_counts_and_names_what_its_graph_has_no_room_for(console: Console, served: Served, bus: Bus) -> None:
    """The graph has the nearest; the lists beside it are of all, also on other pages."""
    page = bus.page("story:many")
    ground = page.add("observation", "the ground of many")
    with because(page.history(ground.id)[0]):
        bus.page("story:caused").add("reminder", "caused elsewhere")
    with Bus.connect(served.url, source="many", max_observations=200) as many:
        many.page(page.name).add_many(
            [
                NewObservation(type="observation", content=f"rests {number}", evidence=[ground.id])
                for number in range(160)
            ]
        )
    page.refute(ground.id, reason="no")
    window = console.open(f"#/story?page=story:many&selected={ground.id}")
    story = window.locator(".story")
    expect(story).to_contain_text("rests on 0; 160 rest on it; the nearest 150 are shown")
    expect(window.locator(".graph-node")).to_have_count(150)
    expect(story).to_contain_text("by refuting it: 160 observations")
    expect(window.locator(".pulled")).to_have_count(100)
    expect(story).to_contain_text("and 60 more")
    badge = window.locator(".caused li", has_text="added").get_by_role("link")
    expect(badge).to_contain_text("from the page story:caused")
    expect(badge).to_have_attribute("href", re.compile("page=story(:|%3A)caused"))


@pytest.mark.browser
def test_a_cleared_observation_keeps_its_story(console: Console, bus: Bus) -> None:
    """The history of an observation outlives the page."""
    page = bus.page("story:cleared")
    added = page.add("observation", "over and gone")
    page.resolve(added.id)
    page.clear_resolved([added.id])
    window = console.open(f"#/story?page=story:cleared&selected={added.id}")
    expect(window.locator(".story-head")).to_contain_text("over and gone")
    assert life(window) == ["added", "resolved", "cleared from the page"]


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_story_passes_axe(open_console: Opened, served: Served, bus: Bus, scheme: str, width: int) -> None:
    """Checks a graph, and the view without a selection; at 360 px only the graph scrolls sideways."""
    case = write_chain(bus, f"story:axe-{scheme}-{width}")
    console = open_console(served, scheme=scheme, width=width)
    window = console.open(f"#/story?page=story:axe-{scheme}-{width}&selected={case.alert}")
    expect(window.locator(".graph-node")).to_have_count(4)
    assert violations(window) == []
    assert window.evaluate("() => document.querySelector('.story').scrollWidth <= innerWidth")
    window = console.open(f"#/story?page=story:axe-{scheme}-{width}")
    expect(window.get_by_role("heading", name="Whose story?")).to_be_visible()
    assert violations(window) == []


@pytest.mark.browser
def test_a_story_is_printed_whole_in_dark_letters(open_console: Opened, served: Served, bus: Bus) -> None:
    """Paper is white also with the dark theme, and nothing on it scrolls."""
    case = write_chain(bus, "story:print")
    for number in range(20):
        bus.page("story:print").update(case.pattern, content=f"version {number}")
        bus.page("story:print").link(case.alert, f"ticket-{number}")
    window = open_console(served, scheme="dark").open(f"#/story?page=story:print&selected={case.pattern}")
    expect(window.locator(".life-step")).to_have_count(22)
    window.wait_for_selector(".slider")
    story = window.locator(".story")
    hidden = "story => story.scrollHeight - story.clientHeight"
    assert story.evaluate(hidden) > 100
    expect(window.get_by_role("button", name="Enlarge the graph")).to_be_visible()
    window.emulate_media(media="print")
    window.evaluate("() => { dispatchEvent(new Event('beforeprint')); }")
    settle(window)
    assert story.evaluate(hidden) <= 1
    box = window.locator(".graph-box").bounding_box()
    assert box is not None
    nodes = [each.bounding_box() for each in window.locator(".graph-drawing > :is(.graph-node, .graph-action)").all()]
    assert len(nodes) == 24
    assert max(each["x"] + each["width"] for each in nodes if each) < 720
    assert max(each["y"] + each["height"] for each in nodes if each) <= box["y"] + box["height"]
    expect(window.get_by_role("button", name="Enlarge the graph")).to_be_hidden()
    assert story.evaluate("story => getComputedStyle(story).color") == "rgb(27, 28, 32)"
    expect(window.locator("footer.time")).to_be_hidden()
    expect(window.get_by_role("navigation")).to_be_hidden()


@pytest.mark.browser
def test_tags_of_the_first_event_stand_in_one_line_with_its_other_facts(console: Console, bus: Bus) -> None:
    """A box that cuts its text has no baseline of its text."""
    page = bus.page("story:tags")
    alert = page.add("risk_alert", "Failed SSH passwords", tags=["security", "ssh"])
    window = console.open(f"#/story?page={page.name}&selected={alert.id}")
    middles = window.locator(".life-step .hint", has_text="confidence").evaluate(
        """facts => {
            const texts = document.createTreeWalker(facts, NodeFilter.SHOW_TEXT);
            const found = [];
            while (texts.nextNode()) {
                const range = document.createRange();
                range.selectNodeContents(texts.currentNode);
                const { top, bottom, width } = range.getBoundingClientRect();
                if (width) found.push((top + bottom) / 2);
            }
            return [found[0], found.at(-1)];
        }"""
    )
    assert abs(middles[0] - middles[1]) <= 1


@pytest.mark.browser
def test_a_page_without_observations_says_how_its_stories_begin(console: Console, bus: Bus) -> None:
    """It leads to where one can be added, and to the closed ones."""
    window = console.open("#/story?page=story:none")
    expect(window.get_by_role("heading", name="Nothing is open on story:none")).to_be_visible()
    main = window.get_by_role("main")
    expect(main).to_contain_text("A story is the life of one observation")
    page = bus.page("story:none")
    page.resolve(page.add("observation", "done").id)
    main.get_by_role("link", name="closed ones").click()
    console.expect_rows("done")
