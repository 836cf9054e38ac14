"""The time bar: the page at any moment."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Page as Window
from playwright.sync_api import Route, expect

from scratchbus import Bus, Event, Page
from scratchbus.errors import Conflict
from tests.browser.conftest import Console, Opened, address_of, settle
from tests.browser.serving import Served
from tests.inspection import await_tick
from tests.waiting import eventually

STATUSES = ["active", "pending_review", "resolved", "archived"]


def busy_page(bus: Bus, name: str, events: int) -> Page:
    """Return a page with many events; each observation has a different content."""
    page = bus.page(name)
    choose = random.Random(name)
    ids: list[str] = []
    for number in range(events):
        if number % 3 == 0:
            ids.append(page.add(choose.choice(["risk_alert", "observation"]), f"item {number}").id)
        changes: list[Callable[[str], object]] = [page.resolve, page.review, page.reopen, page.archive, page.claim]
        with suppress(Conflict):  # some transitions are not allowed
            choose.choice(changes)(choose.choice(ids))
    return page


def page_of_seconds(bus: Bus, name: str, events: int) -> Page:
    """Return such a page whose events span at least a second and a half."""
    page = busy_page(bus, name, events)
    added, changes = page.add("observation", "changes for a while"), count(1)

    def has_changed_long_enough() -> bool:
        changed = page.update(added.id, confidence=next(changes) / 100_000)
        return changed.updated_at - added.created_at > timedelta(seconds=1.5)

    eventually(has_changed_long_enough)
    return page


def shown(window: Window) -> dict[str, str]:
    """Return the status of each observation in the table, by content."""
    found: dict[str, str] = window.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.now-table .table-body .table-row')].map(row => [
            row.querySelector('.excerpt').textContent,
            row.querySelector('.status')?.textContent.replace(' ', '_') ?? 'active',
        ]))"""
    )
    return found


def is_past(moment: datetime) -> bool:
    """Return whether a moment has passed."""
    return datetime.now(UTC) > moment


def moment_of(window: Window) -> str:
    """Return the moment in the address; empty when live."""
    return at_of(address_of(window))


def at_of(address: str) -> str:
    """Return the moment in an address."""
    return parse_qs(address.partition("?")[2]).get("at", [""])[0]


def expect_as_of(window: Window, page: Page) -> None:
    """Wait until the table shows the observations and statuses of the page at the moment in the address."""

    def same() -> bool:
        at = moment_of(window)
        was = page.as_of(at).list(limit=None) if at else page.list(limit=None)
        return shown(window) == {each.content: each.status for each in was}

    eventually(same, f"the page as of {moment_of(window)}")


def click_at(window: Window, event: Event) -> None:
    """Click on the slider at the time of an event, and wait until it is shown."""
    slider = window.get_by_role("slider")
    box = slider.bounding_box()
    assert box is not None
    since, until = (float(slider.get_attribute(f"aria-value{end}") or 0) for end in ("min", "max"))
    part = (event.at.timestamp() * 1000 - since) / (until - since)
    window.mouse.click(box["x"] + min(0.999, max(0, part)) * box["width"], box["y"] + 20)
    expect(slider).to_have_attribute("aria-busy", "false")


def slide(open_console: Opened, served: Served, bus: Bus, name: str, times: int) -> None:
    """Click on the slider at random events, and compare the page with `as_of`."""
    page = busy_page(bus, name, 20 + times)
    happened = list(bus.events(pages=[name]))
    window = open_console(served, width=1400, height=3600).open(f"#/now?page={name}&q=status:all")
    choose = random.Random(times)
    moments = set()
    for _ in range(times):
        click_at(window, choose.choice(happened))
        expect_as_of(window, page)
        moments.add(moment_of(window))
    assert len(moments) > times // 4
    assert moments - {""} <= {str(each.position) for each in happened}


@pytest.mark.slow
def test_the_slider_shows_past_pages(open_console: Opened, served: Served, bus: Bus) -> None:
    """Five random moments; the address has the exact position of an event."""
    slide(open_console, served, bus, "time:five", 5)


@pytest.mark.browser
@pytest.mark.timeout(600)
def test_the_slider_shows_200_past_pages(open_console: Opened, served: Served, bus: Bus) -> None:
    """Two hundred random moments."""
    slide(open_console, served, bus, "time:many", 200)


@pytest.mark.slow
def test_the_ends_of_a_short_time_bar_differ(console: Console, bus: Bus) -> None:
    """Even if all events are within one second."""
    page = bus.page("time:short")
    page.add("observation", "first")
    page.add("observation", "second")
    window = console.open("#/now?page=time:short")
    start, end = window.locator(".slider-end.start"), window.locator(".slider-end.end")
    expect(start).to_be_visible()
    assert start.inner_text() != end.inner_text()


@pytest.mark.slow
def test_arrow_keys_step_through_events(console: Console, bus: Bus) -> None:
    """The address shows the same page in another window; `l` returns to live."""
    page = bus.page("time:steps")
    first = page.add("observation", "first")
    page.add("observation", "second")
    page.resolve(first.id)
    window = console.open("#/now?page=time:steps")
    console.expect_rows("second")
    window.wait_for_selector(".slider")
    window.keyboard.press("ArrowLeft")
    console.expect_rows("second", "first")
    window.keyboard.press("ArrowLeft")
    console.expect_rows("first")
    assert moment_of(window) == str(first.position)
    expect(window.locator(".connection-text")).to_have_text("Past")
    expect(window.get_by_role("button", name="Add")).to_be_disabled()
    console.open(address_of(window))
    console.expect_rows("first")
    window.wait_for_selector(".slider")
    window.keyboard.press("ArrowRight")
    console.expect_rows("second", "first")
    window.keyboard.press("l")
    console.expect_rows("second")
    assert moment_of(window) == ""


@pytest.mark.browser
def test_quick_key_presses_add_up(console: Console, bus: Bus) -> None:
    """Keys pressed during a step count; `l` cancels them."""
    busy_page(bus, "time:quick", 24)
    happened = list(bus.events(pages=["time:quick"]))
    window = console.open("#/now?page=time:quick")
    window.wait_for_selector(".slider")
    for _ in range(7):
        window.keyboard.press("ArrowLeft")
    eventually(lambda: moment_of(window) == str(happened[-8].position), "seven events back")
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft", "l"):
        window.keyboard.press(key)
    eventually(lambda: moment_of(window) == "", "live")
    expect(window.locator(".slider")).to_have_attribute("aria-busy", "false")  # no step is in flight any more
    assert moment_of(window) == ""


@pytest.mark.browser
def test_dragging_follows_the_pointer(console: Console, bus: Bus) -> None:
    """The page follows while dragging; releasing selects the moment, and beyond the end is live."""
    page = page_of_seconds(bus, "time:drag", 24)
    window = console.open("#/now?page=time:drag&q=status:all")
    box = window.locator(".slider").bounding_box()
    assert box is not None
    middle = box["y"] + 20
    window.mouse.move(box["x"] + box["width"] - 3, middle)
    window.mouse.down()
    for part in (0.8, 0.6, 0.4, 0.2):
        window.mouse.move(box["x"] + part * box["width"], middle)
        eventually(lambda: moment_of(window) != "", "a moment of the past")
    at_last = moment_of(window)
    window.mouse.move(box["x"] + 4, middle)
    window.mouse.up()
    eventually(lambda: moment_of(window) < at_last, "an earlier moment")
    expect_as_of(window, page)
    window.mouse.move(box["x"] + 5, middle)
    window.mouse.down()
    window.mouse.move(box["x"] + box["width"] + 50, middle)
    window.mouse.up()
    eventually(lambda: moment_of(window) == "", "live")
    expect_as_of(window, page)


@pytest.mark.browser
def test_playing_ends_live(console: Console, bus: Bus) -> None:
    """Playing shows the moments in order, and ends with the live page."""
    page = page_of_seconds(bus, "time:play", 24)
    window = console.open("#/now?page=time:play&q=status:all")
    window.wait_for_selector(".slider")
    window.get_by_role("button", name="Speed: 10×").click()
    window.get_by_role("menuitemradio", name="1×", exact=True).click()
    window.evaluate("() => { window.seen = []; setInterval(() => seen.push(location.hash), 20); }")
    window.get_by_role("button", name="Play", exact=True).click()
    expect(window.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    expect(window.get_by_role("button", name="Play", exact=True)).to_be_visible(timeout=20_000)
    seen = [at_of(each) for each in window.evaluate("seen")]
    moments = [at for at in dict.fromkeys(seen) if at]
    assert len(moments) > 1
    assert moments == sorted(moments, key=lambda at: [int(part) for part in at.split("-")])
    assert moment_of(window) == ""
    expect_as_of(window, page)


@pytest.mark.browser
def test_an_invalid_time_is_explained(console: Console) -> None:
    """The field shows examples while its text is not a time."""
    window = console.open("#/now")
    field = window.get_by_label("Moment").and_(window.locator("input"))
    field.fill("half past two")
    expect(window.get_by_text("Not a time yet. Such as 14:02")).to_be_visible()
    field.fill("5m ago")
    expect(window.get_by_text("Not a time yet")).to_be_hidden()


@pytest.mark.browser
def test_a_typed_time_and_the_c_key_select_an_event(console: Console, bus: Bus) -> None:
    """A typed time selects the last event before it; `c` the last change of the selection, then earlier ones."""
    page = bus.page("time:typed")
    added = page.add("observation", "looked at")
    await_tick(bus)
    changed = page.update(added.id, confidence=0.5)
    await_tick(bus)
    page.add("observation", "later")
    window = console.open(f"#/now?page=time:typed&selected={added.id}")
    window.wait_for_selector(".slider")
    window.keyboard.press("c")
    eventually(lambda: moment_of(window) == str(changed.position), "the last change")
    window.keyboard.press("c")
    eventually(lambda: moment_of(window) == str(added.position), "the change before")
    window.keyboard.press("g")
    window.keyboard.type(changed.updated_at.isoformat())
    window.keyboard.press("Enter")
    eventually(lambda: moment_of(window) == str(changed.position), "the typed time")
    window.get_by_role("textbox", name="Moment").fill("half past never")
    expect(window.get_by_role("textbox", name="Moment")).to_have_attribute("aria-invalid", "true")


@pytest.mark.browser
@pytest.mark.parametrize(("zone", "offset"), [("Asia/Kathmandu", "UTC+05:45"), ("Pacific/Marquesas", "UTC-09:30")])
def test_a_time_names_its_zone(console: Console, bus: Bus, zone: str, offset: str) -> None:
    """A screenshot of it is read in other zones."""
    added = bus.page("time:zone").add("observation", "somewhere")
    session = console.window.context.new_cdp_session(console.window)
    session.send("Emulation.setTimezoneOverride", {"timezoneId": zone})
    window = console.open(f"#/now?page=time:zone&selected={added.id}")
    local = added.created_at.astimezone(datetime.strptime(offset, "UTC%z").tzinfo)
    there = f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03} {offset}"
    for time in (window.locator(".cell-age time"), window.locator(".detail time").first):
        expect(time.first).to_have_attribute("title", there)


@pytest.mark.browser
def test_a_slow_clock_of_the_browser_does_not_matter(console: Console, bus: Bus) -> None:
    """Times that are typed, and the span of the bar, follow the server's clock."""
    page = bus.page("time:clock")
    first = page.add("observation", "first")
    page.add("observation", "second")
    console.window.add_init_script("const right = Date.now; Date.now = () => right() - 3600000;")
    window = console.open("#/now?page=time:clock&span=15m")
    end = window.locator(".slider").get_attribute("aria-valuemax")
    assert end is not None
    assert abs(int(end) / 1000 - first.created_at.timestamp()) < 300
    field = window.get_by_label("Moment").and_(window.locator("input"))
    field.fill(str(first.position))
    field.press("Enter")
    eventually(lambda: moment_of(window) == str(first.position), "the first event")
    console.expect_rows("first")


@pytest.mark.browser
def test_a_late_answer_does_not_turn_the_clock_back(console: Console, bus: Bus) -> None:
    """The Date header says when the server wrote it; an event since then is not in the future."""
    page = bus.page("time:late")
    window = console.open("#/now?page=time:late")
    window.wait_for_selector(".slider")
    first = page.add("observation", "first")
    page.add("observation", "second")
    console.expect_rows("second", "first")
    window.evaluate(
        """async () => {
            const { setClockBy } = await import("/console/lib/time.js");
            setClockBy(new Date(Date.now() - 60_000).toUTCString(), Date.now() - 61_000);
        }"""
    )
    field = window.get_by_label("Moment").and_(window.locator("input"))
    field.fill(str(first.position))
    field.press("Enter")
    eventually(lambda: moment_of(window) == str(first.position), "the first event")


@pytest.mark.browser
@pytest.mark.parametrize("how", ["typed", "link", "page"])
def test_leaving_the_moment_that_plays_stops_playing(console: Console, bus: Bus, how: str) -> None:
    """The moment that someone chose stays, whatever the next event would have been."""
    page = bus.page(f"time:stop-{how}")
    first = page.add("observation", "first")
    for number in range(8):
        eventually(partial(is_past, first.created_at + timedelta(seconds=number / 2)))
        page.update(first.id, confidence=(number + 1) / 10)
    bus.page("time:stop-other").add("observation", "elsewhere")
    console.window.clock.install()
    window = console.open(f"#/now?page={page.name}")
    window.wait_for_selector(".slider")
    window.get_by_role("button", name="Speed: 10×").click()
    window.get_by_role("menuitemradio", name="1×", exact=True).click()
    window.get_by_role("button", name="Play", exact=True).click()
    eventually(lambda: moment_of(window) not in ("", str(first.position)), "playing")
    if how == "typed":
        field = window.get_by_label("Moment").and_(window.locator("input"))
        field.fill(str(first.position))
        field.press("Enter")
    elif how == "link":
        window.evaluate("address => { location.hash = address; }", f"#/now?page={page.name}&at={first.position}")
    else:
        window.evaluate("() => { location.hash = location.hash.replace(/page=[^&]*/, 'page=time:stop-other'); }")
    expect(window.get_by_role("button", name="Play", exact=True)).to_be_visible(timeout=3_000)
    chosen = moment_of(window)
    assert (chosen == str(first.position)) is (how != "page")
    window.clock.run_for(2_500)
    settle(window)
    assert moment_of(window) == chosen


@pytest.mark.browser
def test_a_link_whose_moment_is_no_time_is_named_as_it_is(open_console: Opened, served: Served, bus: Bus) -> None:
    """Slider and histogram go on, also with a span that would begin before it."""
    page = bus.page("time:typo")
    page.add("observation", "there")
    console = open_console(served, sees_failures=True)
    window = console.open("#/now?page=time:typo&at=yesterdy&span=1h")
    expect(window.get_by_role("slider")).to_have_attribute("aria-valuetext", "yesterdy")
    expect(window.get_by_role("slider")).to_have_attribute("aria-valuenow", re.compile(r"^\d+$"))
    expect(window.get_by_text("'yesterdy' is not a time or a position")).to_be_visible()
    expect(window.locator(".time-missing")).to_have_count(0)


@pytest.mark.browser
@pytest.mark.parametrize("typed", ["2m+ago", "-120s", "2020-01-31+12:00"])
def test_a_time_typed_into_the_address_is_shown(console: Console, bus: Bus, typed: str) -> None:
    """The address keeps the time that was meant, so that a copy of it shows the same."""
    bus.page("time:typed").add("observation", "of now")
    window = console.open(f"#/now?page=time:typed&at={typed}")
    expect(window.locator("main.past").get_by_role("heading", name="The page was empty then")).to_be_visible()
    moment = datetime.fromisoformat(moment_of(window))
    if typed.startswith("2020"):
        assert moment.year == 2020
    else:
        assert 119 < (datetime.now(UTC) - moment).total_seconds() < 240


@pytest.mark.browser
def test_a_time_to_come_in_the_address_is_live(console: Console, bus: Bus) -> None:
    bus.page("time:to-come").add("observation", "of now")
    window = console.open("#/now?page=time:to-come&at=2999-01-31+12:00")
    console.expect_rows("of now")
    assert moment_of(window) == ""


@pytest.mark.browser
def test_steps_that_failed_are_not_made_later(open_console: Opened, served: Served, bus: Bus) -> None:
    """Keys pressed while the server fails do not add to the first key that works again."""
    busy_page(bus, "time:failed", 12)
    happened = list(bus.events(pages=["time:failed"]))
    console = open_console(served, sees_failures=True)
    window = console.open("#/now?page=time:failed")
    window.wait_for_selector(".slider")
    held: list[Route] = []

    def hold_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    window.route(re.compile(r"/events\?last="), hold_first)
    for _ in range(4):
        window.keyboard.press("ArrowLeft")
    eventually(lambda: window.evaluate("true") and held, "the first step", within=10)
    held[0].fulfill(status=500, json={"title": "Broken", "detail": "it failed"})
    expect(window.get_by_text("it failed")).to_be_visible()
    window.keyboard.press("ArrowLeft")
    eventually(lambda: moment_of(window) == str(happened[-2].position), "one event back", within=10)
    expect(window.get_by_role("slider")).to_have_attribute("aria-busy", "false")
    settle(window)
    assert moment_of(window) == str(happened[-2].position)
