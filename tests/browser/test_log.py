"""The view Log: events as they arrive."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Route, expect

from scratchbus import Bus, NewObservation
from tests.browser.conftest import Console, Opened, settle
from tests.browser.serving import Served


@pytest.mark.slow
def test_the_log_follows_pauses_and_expands(console: Console, bus: Bus) -> None:
    """Events appear at the top; while paused they wait and none is lost; a row expands to its JSON."""
    page = bus.page("log:live")
    page.add("observation", "before")
    window = console.open("#/log?q=page:log:live")
    console.expect_rows("before")
    page.add("observation", "live")
    console.expect_rows("live", "before")
    window.keyboard.press("z")
    page.add("observation", "while paused")
    last = page.add("observation", "last")
    expect(window.get_by_role("button", name="Go on, 2 new")).to_be_visible()
    assert console.rows() == ["live", "before"]
    window.keyboard.press("z")
    console.expect_rows("last", "while paused", "live", "before")
    window.get_by_role("row").filter(has_text="last").click()
    shown = json.loads(window.locator(".raw pre").inner_text())
    assert shown["subject"] == last.id
    assert shown["content"] == "last"


@pytest.mark.browser
def test_each_kind_of_event_has_a_line_of_its_own(console: Console, bus: Bus) -> None:
    """The line describes the event, and shortens ids in reasons."""
    session = bus.notepad("log:said")
    session.write("# Plan")
    session.update("find_replace", find="Plan", replace="The plan")
    bus.todo("log:said").write([{"id": "1", "content": "Ask the bank", "status": "in_progress"}])
    window = console.open("#/log?q=page:session:log:said")
    console.expect_rows("Ask the bank (in progress)", "find replace: Plan → The plan", "# Plan")
    bus.facts("log:said").assert_fact("card 4242", "part_of", "account 17")
    bus.preferences("log:said").remember("calls", "not before 9:00")
    console.open("#/log?q=page:knowledge:log:said")
    console.expect_rows("calls: not before 9:00", "card 4242 → part of → account 17")
    kind = window.locator(".table-body .cell-kind", has_text="preference remembered")
    assert kind.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
    page = bus.page("log:said")
    ground = page.add("observation", "ground")
    based = page.add("observation", "based on it", evidence=[ground.id])
    page.refute(ground.id, reason="wrong")
    page.claim(based.id)
    page.release(based.id)
    page.resolve(based.id, reason="done")
    console.open("#/log?q=page:log:said")
    console.expect_rows(
        "→ resolved · done",
        "the claim was given back",
        "by daemon for 30s",
        f"reviewed → pending review · rests on …{ground.id[-6:]}, which was refuted: wrong",
        "refuted → archived · wrong",
        "based on it",
        "ground",
    )


@pytest.mark.slow
def test_a_long_log_says_how_much_is_loaded(console: Console, served: Served) -> None:
    """The count says that it is of the newest events only."""
    rows = [NewObservation(type="observation", content=f"row {each}") for each in range(501)]
    with Bus.connect(served.url, source="daemon", max_observations=1000) as bus:
        bus.page("log:long").add_many(rows)
    window = console.open("#/log")
    expect(window.locator(".toolbar-count")).to_have_text("the newest 500 events")


@pytest.mark.browser
def test_a_search_ends_at_the_oldest_event_that_may_be_kept(console: Console, served: Served) -> None:
    """It does not load the whole log into the window, and says how to find older events."""
    rows = [NewObservation(type="observation", content=f"kept {each}") for each in range(1000)]
    with Bus.connect(served.url, source="daemon", max_observations=3000) as bus:
        for _ in range(2):
            bus.page("log:kept").add_many(rows)

    def with_fewer_events(route: Route) -> None:
        found = route.fetch()
        route.fulfill(response=found, body=found.text().replace("200_000", "1_200"))

    held: list[Route] = []

    def hold_one(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    console.window.route("**/views/log.js", with_fewer_events)
    console.window.route("**/events?last=*&before=*", hold_one)
    window = console.open("#/log?q=nowhere-in-the-log")
    expect(window.get_by_role("region", name="Events").get_by_text("Loading …")).to_be_visible()
    held[0].continue_()
    expect(window.get_by_text("No event fits the filter")).to_be_visible()
    expect(window.locator(".toolbar-count")).to_have_text("0 of the newest 1,200; go back in time for older ones")
    with Bus.connect(served.url, source="daemon", max_observations=3000) as bus:
        bus.page("log:kept").add("observation", "nowhere-in-the-log until now")
    console.expect_rows("nowhere-in-the-log until now")
    expect(window.locator(".toolbar-count")).to_have_text("1 of the newest 1,200; go back in time for older ones")


@pytest.mark.browser
def test_enter_goes_from_the_filter_to_the_events(console: Console, bus: Bus) -> None:
    """By keyboard alone: filter, go to the first event, open it."""
    bus.page("log:enter").add("observation", "found")
    window = console.open("#/log")
    expect(window.get_by_role("combobox", name="Filter")).to_be_visible()
    window.keyboard.press("/")
    window.keyboard.type("page:log:enter ")
    console.expect_rows("found")
    window.keyboard.press("Enter")
    window.keyboard.press("Enter")
    expect(window.get_by_role("button", name="Only this subject")).to_be_visible()


@pytest.mark.browser
def test_escape_closes_suggestions_then_empties_the_filter(console: Console, bus: Bus) -> None:
    """In the field; the arrow down shows the suggestions again."""
    window = console.open("#/log")
    field = window.get_by_role("combobox", name="Filter")
    expect(field).to_be_visible()
    window.keyboard.press("/")
    window.keyboard.type("ki")
    suggestions = window.get_by_role("listbox", name="Suggestions")
    expect(suggestions).to_be_visible()
    window.keyboard.press("Escape")
    expect(suggestions).to_be_hidden()
    expect(field).to_have_value("ki")
    window.keyboard.press("ArrowDown")
    expect(suggestions.get_by_role("option", name="kind:")).to_have_attribute("aria-selected", "true")
    window.keyboard.press("Escape")
    window.keyboard.press("Escape")
    expect(field).to_have_value("")


@pytest.mark.browser
def test_escape_closes_expanded_events_then_clears_the_filter(console: Console, bus: Bus) -> None:
    """Also from within an expanded event, whose row gets the focus back."""
    for content in ("first", "second"):
        bus.page("log:escape").add("observation", content)
    window = console.open("#/log?q=page:log:escape")
    console.expect_rows("second", "first")
    first = window.get_by_role("row").filter(has_text="first").first
    first.click()
    window.get_by_role("row").filter(has_text="second").first.click()
    expect(window.locator(".raw")).to_have_count(2)
    window.locator(".raw").filter(has_text='"second"').get_by_role("button", name="Only this subject").focus()
    window.keyboard.press("Escape")
    expect(window.locator(".raw")).to_have_count(1)
    expect(window.locator(".table-row").filter(has_text="second")).to_be_focused()
    window.keyboard.press("Escape")
    expect(window.locator(".raw")).to_have_count(0)
    expect(window.get_by_role("combobox", name="Filter")).to_have_value("page:log:escape")
    window.keyboard.press("Escape")
    expect(window.get_by_role("combobox", name="Filter")).to_have_value("")


@pytest.mark.browser
def test_hostile_text_is_shown_as_text(console: Console, bus: Bus) -> None:
    """Markup, scripts, escape sequences and characters that reorder text are shown and have no effect."""
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script> \x1b[31mred \u202etfel"
    seen = "<img src=x onerror=alert(1)><script>alert(2)</script> ESC[31mred 202Etfel"
    page = bus.page("log:hostile")
    page.add("risk_alert", hostile, tags=["<b>tag</b>"], owner="<i>owner</i>", context={"<u>": hostile})
    for address in ("#/now?page=log:hostile", "#/log?q=page:log:hostile"):
        window = console.open(address)
        console.expect_rows(seen)
        window.get_by_role("row").nth(1).click()
        expect(window.locator(".detail, .raw").get_by_text("script").first).to_be_visible()
        assert window.locator("main :is(script, img, b, i, u)").count() == 0


@pytest.mark.browser
@pytest.mark.timeout(600)
def test_a_hundred_thousand_rows_scroll(own_server: Served, open_console: Opened) -> None:
    """Only visible rows are in the document, frames stay short, and live rows do not move the visible ones."""
    with Bus.connect(own_server.url, source="daemon", max_observations=200_000) as bus:
        page = bus.page("log:many")
        for batch in range(100):
            page.add_many(
                [NewObservation(type="observation", content=f"row {batch * 1000 + each}") for each in range(1000)]
            )
        console = open_console(own_server)
        window = console.open("#/log?q=page:log:many")
        window.wait_for_selector(".log-table .table-row")
        read_all = """async () => {
            const body = document.querySelector('.table-body');
            for (let last = -1, same = 0; same < 100;) {
                body.scrollTop = body.scrollHeight;
                await new Promise(requestAnimationFrame);
                await new Promise(done => setTimeout(done, 20));
                same = body.scrollHeight === last ? same + 1 : 0;
                last = body.scrollHeight;
                if (last > 28 * 100_000) return last;
            }
            return body.scrollHeight;
        }"""
        assert window.evaluate(read_all) >= 28 * 100_000
        frames = window.evaluate(
            """async () => {
                const body = document.querySelector('.table-body'), found = [];
                let before = performance.now(), rows = 0;
                for (let frame = 0; frame < 200; frame++) {
                    body.scrollTop = (frame * 7919 % 200) / 200 * body.scrollHeight;
                    await new Promise(requestAnimationFrame);
                    const now = performance.now();
                    found.push(now - before);
                    before = now;
                    rows = Math.max(rows, body.querySelectorAll('.table-row').length);
                }
                return {median: found.sort((a, b) => a - b)[100], rows};
            }"""
        )
        assert frames["rows"] < 100
        assert frames["median"] < 100
        window.evaluate("document.querySelector('.table-body').scrollTop = 28 * 500")
        first = """() => {
            const top = document.querySelector('.table-body').getBoundingClientRect().top;
            return [...document.querySelectorAll('.table-body .table-row')]
                .map(row => [row.getBoundingClientRect().top - top, row.querySelector('.cell-what').textContent])
                .filter(([y]) => y >= 0).sort((a, b) => a[0] - b[0])[0];
        }"""
        settle(window)
        before = window.evaluate(first)
        assert before[0] < 28  # a row is at the top
        expect(window.locator(".toolbar-count")).to_have_text("100,000 events")
        for number in range(20):
            page.add("observation", f"live {number}")
        expect(window.locator(".toolbar-count")).to_have_text("100,020 events")
        settle(window)
        assert window.evaluate(first) == before


@pytest.mark.browser
def test_the_arrows_of_a_fact_point_from_subject_to_object_in_any_script(console: Console, bus: Bus) -> None:
    """The subject is left of the object, also when both are Arabic."""
    bus.facts("log-rtl").assert_fact("\u0645\u062a\u062c\u0631", "owner", "\u0623\u062d\u0645\u062f")
    window = console.open("#/log?q=page:knowledge:log-rtl")
    what = window.locator(".table-body .cell-what .excerpt").first
    expect(what).to_have_text("\u0645\u062a\u062c\u0631 \u2192 owner \u2192 \u0623\u062d\u0645\u062f")
    subject, object_ = what.evaluate(
        """each => [0, each.textContent.length - 1].map(at => {
            const range = document.createRange();
            range.setStart(each.firstChild, at);
            range.setEnd(each.firstChild, at + 1);
            return range.getBoundingClientRect().x;
        })"""
    )
    assert subject < object_
