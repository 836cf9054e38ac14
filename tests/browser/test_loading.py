"""Views while answers are slow: what happens meanwhile is shown in the end."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect

from scratchbus import Bus, NewObservation
from tests.browser.conftest import Console, Opened
from tests.browser.serving import Served
from tests.waiting import eventually

_SLOW = """
    const ask = window.fetch;
    const later = (ms, signal) => new Promise((done, fail) => {
        setTimeout(done, ms);
        signal?.addEventListener("abort", () => fail(new DOMException("aborted", "AbortError")));
    });
    window.fetch = async (address, options) => {
        if (!String(address).includes("PART")) return ask(address, options);
        BEFORE
        const answer = await ask(address, options);
        AFTER
        return answer;
    };
"""


def slow_down(window: Page, part: str, milliseconds: int, *, is_answer: bool = True) -> None:
    """Delay the answers of addresses that contain a part, or if not `is_answer`, their requests."""
    wait = f'document.body.dataset.asked = "yes"; await later({milliseconds}, options.signal);'
    script = _SLOW.replace("PART", part)
    script = script.replace("BEFORE" if is_answer else "AFTER", "").replace("AFTER" if is_answer else "BEFORE", wait)
    window.add_init_script(script)


def wait_until_asked(window: Page) -> None:
    """Wait until a slow request is on its way."""
    window.wait_for_selector("body[data-asked]")


@pytest.mark.browser
def test_changes_during_a_slow_load_of_the_page_are_shown(console: Console, bus: Bus) -> None:
    """Rows that were read before a change do not replace it."""
    page = bus.page("loading:now")
    changed = page.add("observation", "before")
    slow_down(console.window, "/observations?", 2000)
    window = console.open("#/now?page=loading:now")
    wait_until_asked(window)
    page.update(changed.id, content="after")
    page.add("observation", "new")
    expect(window.locator(".toolbar-count")).to_contain_text("observation")
    console.expect_rows("new", "after")


@pytest.mark.browser
def test_the_most_urgent_rows_of_a_long_page_come_first(open_console: Opened, served: Served) -> None:
    """They keep their focus, and the table its place, when the rest comes."""
    with Bus.connect(served.url, source="many", max_observations=2000) as many:
        page = many.page("loading:long")
        added = page.add_many([NewObservation(type="risk_alert", content=f"alert {number}") for number in range(50)])
        page.add_many([NewObservation(type="observation", content=f"note {number}") for number in range(1_000)])
        asked: list[Route] = []
        console = open_console(served)
        console.window.route(
            re.compile(r"/pages/loading:long/observations\?.*after="), lambda route: asked.append(route)
        )
        window = console.open("#/now?page=loading:long")
        row = window.get_by_role("row", name=re.compile("alert 39"))
        row.focus()
        window.locator(".table-body").evaluate("each => { each.scrollTop = 1500; }")
        expect(window.locator(".toolbar-count")).to_have_text("Loading … 1,000 observations")
        expect(window.locator(".chip")).to_have_text([re.compile("risk_alert …"), re.compile("observation …")])
        page.update(added[2].id, content="changed while the rest is loaded")
        expect(window.get_by_role("row", name=re.compile("changed while"))).to_be_visible()
        eventually(lambda: asked, "the request for the rest")
        asked[0].continue_()
        expect(window.locator(".toolbar-count")).to_have_text("1,050 observations")
        expect(window.locator(".chip")).to_have_text([re.compile("risk_alert 50"), re.compile("observation 1,000")])
        expect(row).to_be_focused()
        assert window.locator(".table-body").evaluate("each => each.scrollTop") == 1500
        expect(window.get_by_role("row", name=re.compile("changed while"))).to_be_visible()


@pytest.mark.browser
def test_an_event_during_a_slow_load_of_the_log_is_shown_once(console: Console, bus: Bus) -> None:
    """It comes live, and with the events that were asked for."""
    page = bus.page("loading:log")
    page.add("observation", "before")
    slow_down(console.window, "/events?last=500", 1500, is_answer=False)
    wait_until_asked(console.open("#/log?q=page:loading:log"))
    page.add("observation", "new")
    console.expect_rows("new")
    console.expect_rows("new", "before")


@pytest.mark.browser
def test_operations_appear_when_the_status_takes_longer_than_the_interval(console: Console) -> None:
    """A view that loads every few seconds lets a slow load finish."""
    slow_down(console.window, "/status", 4000)
    window = console.open("#/operations")
    expect(window.get_by_role("heading", name="Engine")).to_be_visible(timeout=15_000)


@pytest.mark.browser
def test_a_story_appears_although_events_come_faster_than_it_loads(console: Console, bus: Bus) -> None:
    """Each event is a reason to load again, but not to give up the load on its way."""
    page = bus.page("loading:story")
    seen = page.add("observation", "seen again and again", dedupe_key="one")
    slow_down(console.window, "/exposure", 600)
    window = console.open(f"#/story?page=loading:story&selected={seen.id}")
    story = window.get_by_role("heading", name="seen again and again")

    def is_visible_after_an_event() -> bool:
        page.add("observation", "seen again and again", dedupe_key="one")
        return story.is_visible()

    eventually(is_visible_after_an_event, "the story")


@pytest.mark.browser
def test_details_disappear_with_their_observation(console: Console, bus: Bus) -> None:
    """The panel shows neither one that was cleared, nor in the past one that came later."""
    console.sees_failures = True
    page = bus.page("loading:gone")
    first = page.add("observation", "first")
    gone = page.add("observation", "gone")
    window = console.open(f"#/now?page=loading:gone&selected={gone.id}")
    expect(window.locator(".detail-content")).to_have_text("gone")
    window.evaluate("at => { location.hash += `&at=${at}` }", str(first.position))
    expect(window.get_by_text("It was not on the page then")).to_be_visible()
    expect(window.locator(".detail-content")).to_have_count(0)
    window.keyboard.press("l")
    expect(window.locator(".detail-content")).to_have_text("gone")
    page.resolve(gone.id)
    page.clear_resolved([gone.id])
    expect(window.get_by_text(re.compile("It is not on this page"))).to_be_visible()
    expect(window.locator(".detail-content")).to_have_count(0)


@pytest.mark.browser
def test_events_arrive_although_the_first_requests_for_the_stream_failed(open_console: Opened, served: Served) -> None:
    """A server that fails for a moment, but is ready, is asked again."""
    console = open_console(served, sees_failures=True)
    failed: list[str] = []

    def fail_first(route: Route) -> None:
        if len(failed) == 3:
            route.continue_()
        else:
            failed.append(route.request.url)
            route.fulfill(status=500, body="")

    console.window.goto("about:blank")  # the document that signed in may still ask for its own stream
    console.window.route(re.compile(r"/events\?last=1$"), fail_first)
    with console.window.expect_request(re.compile(r"/events\?after="), timeout=30_000):
        console.open("#/now?page=loading:stream")
    assert len(failed) == 3
    with Bus.connect(served.url, source="daemon") as bus:
        bus.page("loading:stream").add("observation", "arrived")
    console.expect_rows("arrived")


@pytest.mark.browser
def test_events_from_before_a_late_stream_are_shown(open_console: Opened, served: Served, bus: Bus) -> None:
    """The view was loaded long before the end of the log could be read; what came between is not lost."""
    page = bus.page("loading:late")
    page.add("observation", "before")
    console = open_console(served, sees_failures=True)
    is_failing = [True]

    def fail(route: Route) -> None:
        if is_failing:
            route.fulfill(status=500, body="")
        else:
            route.continue_()

    console.window.route(re.compile(r"/events\?last=1$"), fail)
    console.open("#/now?page=loading:late")
    console.expect_rows("before")
    page.add("observation", "between")
    is_failing.clear()
    console.expect_rows("between", "before")


@pytest.mark.browser
@pytest.mark.parametrize(
    ("view", "part"),
    [("now", "/observations?"), ("story", "/observations?"), ("what-if", "/events?last=1"), ("memory", "/sessions")],
)
def test_a_view_that_loads_slowly_says_so(console: Console, view: str, part: str) -> None:
    """Until its data is there, it is not merely empty."""
    slow_down(console.window, part, 3000)
    window = console.open(f"#/{view}?page=loading:slow")
    expect(window.locator("main").get_by_text("Loading …")).to_be_visible()
    expect(window.locator("main").get_by_text("Loading …")).to_have_count(0)
