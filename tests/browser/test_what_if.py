"""The view What if: the page with and without some sources."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page as Window
from playwright.sync_api import Route, expect

from scratchbus import Bus, NewObservation, Page, because, stop_engine
from tests.browser.conftest import Console, Opened
from tests.browser.serving import Served, serve
from tests.browser.test_shell import violations
from tests.waiting import eventually


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with its own log: this view reads all of it, and other tests write 100,000 events."""
    directory = tmp_path_factory.mktemp("what-if")
    with serve(f"embedded://{directory}") as running:
        yield running
    stop_engine(directory)


def row(window: Window, content: str) -> str:
    """Return the text of the row of an observation."""
    found = window.locator(".sides-row", has=window.locator(".side:first-child", has_text=content))
    expect(found.locator(".why:not(.quiet)")).to_have_count(1)
    return re.sub(r"\s+", " ", found.inner_text())


@pytest.mark.slow
def test_a_silenced_source_takes_its_dependents_along(console: Console, served: Served) -> None:
    """Its observations, their dependents and effects are gone, and refuted ones are back, each with a reason."""
    with Bus.connect(served.url, source="clock") as clock, Bus.connect(served.url, source="desk") as desk:
        page = clock.page("what-if:why")
        said = page.add("observation", "said by the clock")
        desk.page("what-if:why").add("risk_alert", "rests on the clock", evidence=[said.id])
        with because(desk.page("what-if:why").history(said.id)[0]):
            desk.page("what-if:why").add("reminder", "because of the clock")
        kept = desk.page("what-if:why").add("dependency", "refuted by the clock")
        desk.page("what-if:why").add("observation", "says the desk alone")
        page.refute(kept.id, reason="no")
    window = console.open("#/what-if?page=what-if:why")
    window.get_by_role("switch", name=re.compile("clock")).click()
    expect(window.locator(".what-if-sum")).to_have_text(re.compile("3 gone, 1 another"))
    assert "without=clock" in window.url
    assert "said by clock" in row(window, "said by the clock")
    assert "rests on observation said by the clock" in row(window, "rests on the clock")
    assert "caused by" in row(window, "because of the clock")
    assert "without: refuted by clock" in row(window, "refuted by the clock")
    expect(window.get_by_text("says the desk alone")).to_have_count(0)
    window.keyboard.press("v")
    expect(window.get_by_text("says the desk alone")).to_have_count(2)
    window.keyboard.press("1")
    expect(window.get_by_text("Shown as if clock had been silent.")).to_be_visible()
    window.get_by_role("button", name="Switch on again").click()
    expect(window.get_by_text("Shown as if")).to_have_count(0)


@pytest.mark.browser
def test_a_source_of_later_events_is_none_of_the_past(console: Console, served: Served) -> None:
    with Bus.connect(served.url, source="early") as early, Bus.connect(served.url, source="late") as late:
        added = early.page("what-if:past").add("observation", "said early")
        late.page("what-if:past").resolve(added.id)
    window = console.open(f"#/what-if?page=what-if:past&at={added.position}")
    expect(window.get_by_role("switch", name="early")).to_be_visible()
    expect(window.get_by_role("switch", name="late")).to_have_count(0)
    window.goto(window.url.partition("&at=")[0])
    expect(window.get_by_role("switch", name="late")).to_be_visible()


@pytest.mark.browser
def test_both_sides_match_as_of(console: Console, served: Served) -> None:
    """At random positions, without random sources, both sides have the ids of `page.as_of`."""
    chance = random.Random(7)
    names = ["a", "b", "c"]
    buses = [Bus.connect(served.url, source=f"source-{name}") for name in names]
    ids: list[str] = []
    for _ in range(60):
        page = chance.choice(buses).page("what-if:random")
        if ids and chance.random() < 0.25:
            chosen = chance.choice(ids)
            found = page.get(chosen)
            if found and found.status_class == "open":
                change(page, chosen, chance.randrange(3))
        else:
            evidence = chance.sample(ids, min(len(ids), chance.choice([0, 0, 1, 2])))
            ids.append(
                page.add(chance.choice(["observation", "risk_alert"]), f"number {len(ids)}", evidence=evidence).id
            )
    page = buses[0].page("what-if:random")
    positions = [event.position for event in buses[0].events(pages=["what-if:random"])]
    window = console.open("#/what-if?page=what-if:random")
    for position in chance.sample(positions, 12):
        silent = chance.sample([f"source-{name}" for name in names], chance.choice([1, 2]))
        address = f"#/what-if?page=what-if:random&at={position}&without={quote(','.join(silent))}&all=yes"
        window.evaluate("address => { location.hash = address }", address)
        open_of = lambda past: {each.id for each in past.list(limit=1000) if each.status_class == "open"}  # noqa: E731
        expected = (open_of(page.as_of(position)), open_of(page.as_of(position, silent)))
        eventually(lambda: sides(window) == expected, f"{position} without {silent}")  # noqa: B023  # called immediately
    for bus in buses:
        bus.close()


def change(page: Page, id: str, way: int) -> None:
    """Review, archive or link an observation."""
    if way == 0:
        page.review(id)
    elif way == 1:
        page.archive(id)
    else:
        page.link(id, "done")


def sides(window: Window) -> tuple[set[str], set[str]]:
    """Return the ids of open observations on the left and on the right."""
    left, right = window.evaluate(
        """() => [':first-child', ':last-child']
            .map(side => [...document.querySelectorAll(`.sides-row .side${side} .one`)]
            .filter(one => !one.querySelector('.status-closed, .status-final'))
            .map(one => one.querySelector('.observation-badge').title))"""
    )
    return set(left), set(right)


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_if_passes_axe(open_console: Opened, served: Served, bus: Bus, scheme: str, width: int) -> None:
    """Checks a page with differences, and an empty page."""
    name = f"what-if:axe-{scheme}-{width}"
    ground = bus.page(name).add("observation", "of the daemon")
    with Bus.connect(served.url, source="other") as other:
        other.page(name).add("risk_alert", "rests on it", evidence=[ground.id])
        kept = other.page(name).add("dependency", "changed by the daemon")
    bus.page(name).review(kept.id, reason="hm")
    console = open_console(served, scheme=scheme, width=width)
    window = console.open(f"#/what-if?page={name}&without=daemon&all=yes")
    expect(window.locator(".sides-row.is-gone")).to_have_count(2)
    expect(window.locator(".is-changed .why")).to_contain_text("sent to review")
    assert violations(window) == []
    assert window.evaluate("() => document.querySelector('.what-if').scrollWidth <= innerWidth")
    window = console.open("#/what-if?page=what-if:nothing")
    expect(window.get_by_role("heading", name="Nothing is on what-if:nothing yet")).to_be_visible()
    assert violations(window) == []


@pytest.mark.browser
def test_a_large_page_is_shown_in_parts(console: Console, served: Served) -> None:
    """Only the first rows are in the document, more on request; the sum counts all."""
    with Bus.connect(served.url, source="many", max_observations=1000) as bus:
        bus.page("what-if:many").add_many([NewObservation(type="observation", content=f"row {n}") for n in range(450)])
    window = console.open("#/what-if?page=what-if:many&without=many")
    expect(window.locator(".what-if-sum")).to_have_text("450 gone of 450")
    rows = window.locator(".sides-row:not(.sides-head)")
    expect(rows).to_have_count(200)
    for shown in (400, 450):
        window.get_by_role("button", name="Show more").click()
        expect(rows).to_have_count(shown)
    expect(window.get_by_role("button", name="Show more")).to_have_count(0)


@pytest.mark.browser
def test_of_very_large_pages_the_newest_are_compared(console: Console, served: Served) -> None:
    """Both sides show the same ones, the sources say what they are counted in, and waiting says what is being done."""
    name = "what-if:larger"
    with Bus.connect(served.url, source="first", max_observations=10_000) as bus:
        bus.page(name).add_many([NewObservation(type="observation", content=f"old {n}") for n in range(1_000)])
        bus.page(name).add("observation", "the last old one")
    with Bus.connect(served.url, source="second", max_observations=10_000) as bus:
        for _ in range(5):
            bus.page(name).add_many([NewObservation(type="observation", content=f"new {n}") for n in range(1_000)])
    held: list[Route] = []
    console.window.route(re.compile("/diff[?]"), lambda route: held.append(route))
    window = console.open(f"#/what-if?page={name}&without=second&all=yes")
    expect(window.locator("main .loading")).to_have_text("Loading … comparing with the page without second")
    held[0].continue_()
    expect(window.locator(".what-if-sum")).to_have_text("5,000 gone of the newest 5,000")
    expect(window.locator(".sides-row.is-same")).to_have_count(0)
    expect(window.locator(".source-counted")).to_have_text("Counted in the newest 5,000 observations of the page")
    expect(window.get_by_role("switch", name="second")).to_have_text("second 5,000")


@pytest.mark.browser
def test_forced_colours_show_which_sources_are_off(console: Console, served: Served) -> None:
    for name in ("kept", "silent"):
        with Bus.connect(served.url, source=name) as bus:
            bus.page("what-if:forced").add("observation", f"of {name}")
    console.window.emulate_media(forced_colors="active")
    window = console.open("#/what-if?page=what-if:forced&without=silent")
    colour = "each => getComputedStyle(each).backgroundColor"
    on, off = (
        window.get_by_role("switch", name=name).locator(".switch").evaluate(colour) for name in ("kept", "silent")
    )
    assert on != off


@pytest.mark.browser
def test_events_of_a_silenced_source_do_not_appear_in_now(open_console: Opened, served: Served) -> None:
    """The page is shown without what the source adds while it is open."""
    console = open_console(
        served, sees_failures=True
    )  # it asks for an observation that is not there without the source
    with Bus.connect(served.url, source="loud") as loud, Bus.connect(served.url, source="desk") as desk:
        desk.page("what-if:live").add("observation", "first of the desk")
        console.open("#/now?page=what-if:live&without=loud")
        console.expect_rows("first of the desk")
        loud.page("what-if:live").add("observation", "of the silenced source")
        desk.page("what-if:live").add("observation", "second of the desk")
        console.expect_rows("second of the desk", "first of the desk")


@pytest.mark.browser
def test_what_if_of_a_new_page_says_how_it_begins(console: Console) -> None:
    """Nothing is closed on it, and it has no other moment."""
    window = console.open("#/what-if?page=what-if:new")
    expect(window.get_by_role("heading", name="Nothing is on what-if:new yet")).to_be_visible()
    expect(window.get_by_role("button", name="Show closed ones")).to_have_count(0)
    window.get_by_role("main").get_by_role("link", name="Add an observation").click()
    expect(window.get_by_role("heading", name="No page is called what-if:new yet")).to_be_visible()
