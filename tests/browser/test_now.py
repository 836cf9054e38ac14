"""The view Now: the page, live."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from scratchbus import Bus, NewObservation
from tests.browser.conftest import Console, Opened, address_of, settle
from tests.browser.serving import Served, serve
from tests.waiting import eventually


def test_changes_appear_without_a_reload(console: Console, bus: Bus) -> None:
    """Additions, changes and resolutions of another client appear."""
    page = bus.page("now:live")
    window = console.open("#/now?page=now:live")
    expect(window.get_by_role("heading", name="No page is called now:live yet")).to_be_visible()
    low = page.add("observation", "the low one")
    high = page.add("risk_alert", "the high one", tags=["card"])
    expect(window.get_by_role("row", name=re.compile("the low one"))).to_be_visible()
    console.expect_rows("the high one", "the low one")
    page.update(low.id, content="the low one, changed")
    expect(window.get_by_text("the low one, changed")).to_be_visible()
    page.claim(high.id, ttl="10m")
    expect(window.locator(".cell-claim", has_text="daemon")).to_be_visible()
    page.resolve(low.id)
    expect(window.get_by_text("the low one, changed")).to_be_hidden()


@pytest.mark.browser
def test_an_observation_of_a_whole_second_is_older_than_those_after_it(
    open_console: Opened, served: Served, bus: Bus
) -> None:
    """The time of an event at 0 ms is written without a fraction."""
    page = bus.page("now:second")
    for second in ("35Z", "35.250000Z", "34.750000Z"):
        page.add("observation", second)
    console = open_console(served)

    def set_times(route: Route) -> None:
        answer = route.fetch()
        items = answer.json()["items"]
        for each in items:
            each["created_at"] = f"2026-11-22T22:20:{each['content']}"
        route.fulfill(response=answer, json={"items": items, "next": None})

    console.window.route(re.compile(r"/pages/now:second/observations\?"), set_times)
    console.open("#/now?page=now:second")
    console.expect_rows("35.250000Z", "35Z", "34.750000Z")


@pytest.mark.slow
def test_a_checkbox_shows_closed_observations(console: Console, bus: Bus) -> None:
    """The checkbox adds closed observations, and its term to the filter."""
    page = bus.page("now:closed")
    page.add("observation", "open")
    page.resolve(page.add("observation", "done").id)
    window = console.open("#/now?page=now:closed")
    console.expect_rows("open")
    window.get_by_label("Also closed ones").check()
    console.expect_rows("done", "open")
    expect(window.get_by_role("combobox", name="Filter")).to_have_value("status:all")
    window.get_by_label("Also closed ones").uncheck()
    console.expect_rows("open")


@pytest.mark.slow
def test_content_keeps_a_third_of_the_list_at_every_width(console: Console, bus: Bus) -> None:
    """Also with a selected observation, whose panel links the ids in a reason."""
    page = bus.page("now:room")
    ground = page.add("observation", "Card 4242 was used in Lagos at 14:09")
    alert = page.add("risk_alert", "Card 4242 looks stolen: it was in two countries", evidence=[ground.id])
    page.refute(ground.id, reason="a wrong clock")
    window = console.open(f"#/now?page={page.name}&selected={alert.id}")
    expect(window.locator(".table-body .cell-content")).to_be_visible()
    narrow = []
    for width in range(780, 2000, 20):
        window.set_viewport_size({"width": width, "height": 900})
        cell, whole = (window.locator(each).bounding_box() for each in (".table-body .cell-content", ".now-list"))
        assert cell is not None
        assert whole is not None
        if cell["width"] < whole["width"] / 3:
            narrow.append(width)
    assert not narrow
    expect(window.get_by_role("link", name=f"…{ground.id[-6:]}", exact=True)).to_have_attribute(
        "href", re.compile("story")
    )


@pytest.mark.slow
def test_the_filter_is_in_the_address(console: Console, bus: Bus) -> None:
    """Typing filters at once; the resulting address shows the same rows in another window."""
    page = bus.page("now:filter")
    page.add("risk_alert", "one", tags=["card"])
    page.add("risk_alert", "two", source="mail")
    page.add("observation", "three", tags=["card"])
    window = console.open("#/now?page=now:filter")
    filters = window.get_by_role("combobox", name="Filter")
    filters.fill("type:risk_alert")
    expect(window.locator(".toolbar-count")).to_have_text("2 of 3")
    console.expect_rows("two", "one")
    filters.fill("tag:card thr")
    expect(window.locator(".toolbar-count")).to_have_text("1 of 3")
    other = console.open(address_of(window))
    expect(other.locator(".toolbar-count")).to_have_text("1 of 3")
    console.expect_rows("three")
    expect(other.get_by_role("combobox", name="Filter")).to_have_value("tag:card thr")


@pytest.mark.slow
def test_observations_are_resolved_and_added_in_forms(console: Console, bus: Bus) -> None:
    """Actions by keys and forms reach the bus."""
    page = bus.page("now:act")
    added = page.add("risk_alert", "look at this")
    window = console.open("#/now?page=now:act")
    window.get_by_role("row", name=re.compile("look at this")).click()
    window.get_by_role("button", name="Resolve").click()
    window.get_by_label("Reason").fill("it was a test")
    window.get_by_role("dialog").get_by_role("button", name="Resolve").click()
    expect(window.get_by_role("status").get_by_text("Resolved: look at this")).to_be_visible()
    found = page.get(added.id)
    assert found is not None
    assert (found.status, found.reason) == ("resolved", "it was a test")
    window.keyboard.press("Escape")
    window.keyboard.press("a")
    window.get_by_label("Type").select_option("dependency")
    window.get_by_label("Content").fill("wait for the deploy")
    window.get_by_label("Tags").fill("deploy eu")
    window.get_by_role("dialog").get_by_role("button", name="Add", exact=True).click()
    expect(window.get_by_role("row", name=re.compile("wait for the deploy"))).to_be_visible()
    (made,) = page.list(type="dependency")
    assert (made.content, made.tags) == ("wait for the deploy", ["deploy", "eu"])


@pytest.mark.slow
def test_closing_the_removed_last_observation_is_no_error(console: Console, bus: Bus) -> None:
    """When the only row disappears while it is selected, no row can have the focus."""
    page = bus.page("now:last")
    id = page.add("observation", "the only one").id
    window = console.open(f"#/now?page=now:last&selected={id}")
    console.expect_rows("the only one")
    window.locator(".table-body .table-row").focus()
    page.resolve(id)
    expect(window.get_by_role("heading", name="Nothing is open on the page now:last")).to_be_visible()
    window.keyboard.press("Escape")
    expect(window.locator(".detail")).to_be_hidden()


@pytest.mark.browser
def test_a_type_button_toggles_its_filter(console: Console, bus: Bus) -> None:
    """A button replaces a term that excludes its type, and keeps terms with the same prefix."""
    page = bus.page("now:chips")
    page.add("observation", "one")
    page.add("risk_alert", "two", tags=["type:observations"])
    window = console.open("#/now?page=now:chips&q=-type:observation")
    console.expect_rows("two")
    button = window.get_by_role("group", name="Filter by type").get_by_role("button", name=re.compile("observation"))
    expect(button).to_have_attribute("aria-pressed", "false")
    filters = window.get_by_role("combobox", name="Filter")
    button.click()
    expect(filters).to_have_value("type:observation")
    expect(button).to_have_attribute("aria-pressed", "true")
    console.expect_rows("one")
    filters.fill("tag:type:observations")
    button.click()
    expect(filters).to_have_value("tag:type:observations type:observation")
    button.click()
    expect(filters).to_have_value("tag:type:observations")


@pytest.mark.browser
def test_a_page_that_fails_to_load_shows_no_rows_of_another(open_console: Opened, served: Served, bus: Bus) -> None:
    """When a page cannot be loaded, the rows of the previous one disappear."""
    bus.page("now:mine").add("observation", "mine")
    console = open_console(served, sees_failures=True)
    for view, content in (("now", ".table-row"), ("what-if", ".sides-row"), ("story", ".observation-badge")):
        window = console.open(f"#/{view}?page=now:mine")
        expect(window.locator(content, has_text="mine").first).to_be_visible()
        window.evaluate(f"location.hash = '#/{view}?page=no%20page'")
        expect(window.get_by_role("alert").get_by_text("'no page' is not a name")).to_be_visible()
        expect(window.locator("main").get_by_text("mine", exact=True)).to_have_count(0)
        expect(window.get_by_role("grid")).to_have_count(0)


@pytest.mark.browser
def test_an_unknown_page_offers_to_choose_another(console: Console, bus: Bus) -> None:
    """A mistyped name in a link differs from a page without open observations."""
    bus.page("now:typed").add("observation", "there")
    window = console.open("#/now?page=now:tpyed")
    expect(window.get_by_role("heading", name="No page is called now:tpyed yet")).to_be_visible()
    window.get_by_role("button", name="Choose another page").click()
    window.get_by_role("dialog").get_by_role("button", name=re.compile("now:typed")).click()
    console.expect_rows("there")


@pytest.mark.browser
def test_an_empty_page_leads_to_others_and_to_a_first_observation(
    own_server: Served, open_console: Opened, tmp_path: Path
) -> None:
    """A bus may use other pages than `main`, and other types than those that come with scratchbus."""
    with Bus.connect(own_server.url, source="daemon") as bus:
        (tmp_path / "types.yaml").write_text("types: {low: {priority: 10}, burst: {priority: 80}}")
        bus.push_types(tmp_path / "types.yaml")
        window = open_console(own_server).window
        expect(window.locator("main pre")).to_contain_text("scratchbus add burst ")
        expect(window.get_by_role("button", name="Choose another page")).to_have_count(0)
        bus.page("desk").add("burst", "on the desk")
        window.get_by_role("button", name="Choose another page").click()
        window.get_by_role("dialog").get_by_role("button", name="desk").click()
        expect(window.locator(".table-row", has_text="on the desk")).to_be_visible()


@pytest.mark.browser
def test_joiners_that_belong_to_a_script_are_not_marked(console: Console, bus: Bus) -> None:
    """Joined emoji, Persian and Devanagari are shown as written; characters that hide or reorder text are marked."""
    written = (
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",
        "\U0001f3f3\ufe0f\u200d\U0001f308 \U0001f469\U0001f3fd\u200d\U0001f4bb",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0915\u094d\u200d\u0937",
        "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "\u845b\U000e0100",
    )
    hidden = ("pass\u200cword", "hi\U000e0068\U000e0069", "a\u200db")
    for content in reversed(written + hidden):
        bus.page("now:writing").add("observation", content)
    window = console.open("#/now?page=now:writing")
    console.expect_rows(*written, "pass200Cword", "hiE0068E0069", "a200Db")
    expect(window.locator(".table-body .control")).to_have_count(4)


@pytest.mark.browser
def test_right_to_left_text_begins_at_the_right(console: Console, bus: Bus) -> None:
    """A long Arabic text begins at the right of its cell and of its panel."""
    bus.page("now:rtl").add("observation", "\u0645\u0631\u062d\u0628\u0627 " * 60)
    window = console.open("#/now?page=now:rtl")
    row = window.locator(".table-body .excerpt").first
    assert row.evaluate("each => getComputedStyle(each).direction") == "rtl"
    row.click()
    assert window.locator(".detail-content").evaluate("each => getComputedStyle(each).direction") == "rtl"


@pytest.mark.browser
def test_long_content_keeps_the_actions_in_view(console: Console, bus: Bus) -> None:
    """Panel and story show the beginning of long content, and the rest on request."""
    id = bus.page("now:long").add("observation", "word " * 790 + "the end").id
    for view in ("now", "story"):
        window = console.open(f"#/{view}?page=now:long&selected={id}")
        expect(window.get_by_role("button", name="Resolve")).to_be_in_viewport()
        content = window.locator(".detail-content, .story-content")
        short = content.bounding_box()
        window.get_by_role("button", name="Show all").first.click()
        whole = content.bounding_box()
        assert short is not None
        assert whole is not None
        assert whole["height"] > 1.2 * short["height"]
        expect(window.get_by_role("button", name="Show less")).to_have_attribute("aria-expanded", "true")


@pytest.mark.browser
def test_a_badge_beside_short_content_shows_the_whole_type(console: Console, bus: Bus) -> None:
    """The badge in a form does not cut off the type when there is room."""
    id = bus.page("now:badge").add("pending_confirmation", "ok?").id
    window = console.open(f"#/now?page=now:badge&selected={id}")
    window.get_by_role("button", name="Resolve").click()
    type_ = window.get_by_role("dialog").locator(".observation-badge .type")
    expect(type_).to_have_text("pending_confirmation")
    assert type_.evaluate("each => each.scrollWidth - each.clientWidth") == 0


@pytest.mark.browser
def test_several_statuses_show_the_rows_of_each(console: Console, bus: Bus) -> None:
    """Also beside `open` and `all`, which stand for several."""
    page = bus.page("now:statuses")
    page.resolve(page.add("observation", "done").id)
    page.archive(page.add("observation", "gone").id)
    page.review(page.add("observation", "doubtful").id)
    page.add("observation", "new")
    console.open("#/now?page=now:statuses&q=status:resolved+status:open")
    console.expect_rows("new", "doubtful", "done")
    window = console.open("#/now?page=now:statuses&q=status:pending_review")
    console.expect_rows("doubtful")
    window.get_by_label("Also closed ones").check()
    console.expect_rows("new", "doubtful", "gone", "done")
    console.open("#/now?page=now:statuses&q=status:all+-status:archived")
    console.expect_rows("new", "doubtful", "done")


@pytest.mark.browser
def test_escape_in_a_field_keeps_the_selection(console: Console, bus: Bus) -> None:
    """It empties the filter or leaves the field; pressed again, it closes the selected observation."""
    id = bus.page("now:escape").add("observation", "kept open").id
    window = console.open(f"#/now?page=now:escape&selected={id}")
    expect(window.locator(".detail-content")).to_have_text("kept open")
    filters = window.get_by_role("combobox", name="Filter")
    filters.fill("kept")
    filters.press("Escape")
    expect(filters).to_have_value("")
    expect(filters).to_be_focused()
    filters.press("Escape")
    expect(filters).not_to_be_focused()
    window.wait_for_selector(".slider")
    window.keyboard.press("g")
    window.keyboard.type("yesterday")
    window.keyboard.press("Escape")
    expect(window.get_by_label("Moment", exact=True).first).not_to_be_focused()
    expect(window.locator(".detail-content")).to_have_text("kept open")
    window.keyboard.press("Escape")
    expect(window.locator(".detail")).to_have_count(0)


@pytest.mark.browser
def test_a_new_page_may_begin_the_name_of_another(console: Console, bus: Bus) -> None:
    """The page list offers the typed name as a new page when other names contain it."""
    bus.page("now:first42").add("observation", "of the longer name")
    window = console.open("#/now?page=now:first42")
    console.expect_rows("of the longer name")
    window.keyboard.press("p")
    window.get_by_label("Name of a page").fill("now:first4")
    window.get_by_role("dialog").get_by_role("button", name="now:first4 new page").click()
    expect(window.get_by_role("heading", name="No page is called now:first4 yet")).to_be_visible()


@pytest.mark.browser
def test_a_half_typed_status_is_no_error(console: Console, bus: Bus) -> None:
    """While its name is incomplete, no row has the status; nothing asks the server for it."""
    page = bus.page("now:typing")
    page.resolve(page.add("observation", "done").id)
    page.add("observation", "open")
    window = console.open("#/now?page=now:typing")
    console.expect_rows("open")
    filters = window.get_by_role("combobox", name="Filter")
    asked: list[str] = []
    window.on("request", lambda request: asked.append(request.url))
    filters.press_sequentially("status:res", delay=50)
    expect(window.get_by_role("heading", name="Nothing fits the filter")).to_be_visible()
    filters.press_sequentially("olved")
    console.expect_rows("done")
    assert not [each for each in asked if re.search("status=r(es?)?(&|$)", each)]


@pytest.mark.browser
def test_a_page_is_printed_beyond_the_rows_in_sight(console: Console, bus: Bus) -> None:
    """Each row is below the one before it; afterwards the table is scrolled to where it was."""
    page = bus.page("now:print")
    for number in range(90):
        page.add("observation", f"observation {number} to print", tags=["printed"])
    window = console.open("#/now?page=now:print")
    expect(window.locator(".toolbar-count")).to_have_text("90 observations")
    body = window.locator(".table-body")
    body.evaluate("each => { each.scrollTop = 700; }")
    window.wait_for_selector("[aria-rowindex='27']")
    assert window.locator(".table-body .table-row").count() < 50
    window.evaluate("() => { dispatchEvent(new Event('beforeprint')); }")
    expect(window.locator(".table-body .table-row")).to_have_count(90)
    window.emulate_media(media="print")
    settle(window)
    tops = window.eval_on_selector_all(
        ".table-body .table-row", "all => all.map(each => each.getBoundingClientRect().y)"
    )
    assert all(below - above >= 30 for above, below in pairwise(tops))
    left = "all => all.map(each => each.getBoundingClientRect().x)"
    heads = window.eval_on_selector_all(".table-head [role=columnheader]", left)
    assert heads == window.eval_on_selector_all(".table-body .table-row:first-child [role=gridcell]", left)
    assert window.evaluate("document.documentElement.scrollHeight") > 90 * 30
    window.emulate_media(media="screen")
    window.evaluate("() => { dispatchEvent(new Event('afterprint')); }")
    eventually(lambda: body.evaluate("each => each.scrollTop") == 700, "the table scrolled as before")
    assert len(window.pdf()) > 2_000
    eventually(lambda: window.locator(".table-body .table-row").count() < 50, "the rows in sight")


@pytest.mark.browser
def test_a_row_that_is_scrolled_out_of_sight_keeps_the_focus(console: Console, bus: Bus) -> None:
    """Also when rows come above it, and when it comes back into sight."""
    page = bus.page("now:focus")
    page.add_many([NewObservation(type="observation", content=f"observation {number:02}") for number in range(90)])
    window = console.open("#/now?page=now:focus")
    row = window.get_by_role("row", name=re.compile("observation 85"))
    row.focus()
    for top in (1000, 2500, 800, 0):
        window.locator(".table-body").evaluate("(each, top) => { each.scrollTop = top; }", top)
        settle(window)
        expect(row).to_be_focused(timeout=1_000)
        page.add("risk_alert", "above")
        settle(window)
        expect(row).to_be_focused(timeout=1_000)


@pytest.mark.browser
def test_a_long_tag_ends_with_an_ellipsis(console: Console, bus: Bus) -> None:
    """The ellipsis applies to the text of a block, not of a flex container."""
    page = bus.page("now:tags")
    added = page.add("observation", "tagged", tags=["a-tag-with-a-name-of-forty-characters-in-all"])
    window = console.open(f"#/now?page=now:tags&selected={added.id}")
    tag = window.locator(".detail .tag")
    expect(tag).to_have_css("display", "block")
    assert tag.evaluate("each => each.scrollWidth > each.clientWidth && each.clientHeight === 20")


@pytest.mark.browser
def test_large_numbers_have_separators(open_console: Opened, served: Served) -> None:
    """In the button of the page and in the buttons of types, as elsewhere."""
    with Bus.connect(served.url, source="many", max_observations=2000) as many:
        page = many.page("now:many")
        page.add_many([NewObservation(type="observation", content=f"one of many {number}") for number in range(1_000)])
        page.add("risk_alert", "the only alert")
    window = open_console(served).open("#/now?page=now:many")
    expect(window.locator(".chip", has_text="observation")).to_contain_text("1,000")
    expect(window.locator(".page-button small")).to_have_text("1,001")


@pytest.mark.browser
def test_forced_colours_show_what_is_selected(console: Console, bus: Bus) -> None:
    """The view, and the row, without backgrounds or colours of the theme."""
    page = bus.page("now:forced")
    page.add("observation", "another")
    chosen = page.add("observation", "chosen")
    console.window.emulate_media(forced_colors="active")
    window = console.open(f"#/now?page=now:forced&selected={chosen.id}")
    expect(window.locator(".table-row[aria-selected=true]")).to_have_css("outline-style", "dotted")
    border_of = "each => getComputedStyle(each).borderBottomColor"
    current = window.locator("nav a[aria-current]").evaluate(border_of)
    assert window.locator("nav a", has_text="Story").evaluate(border_of) != current


@pytest.mark.browser
def test_an_empty_page_shows_a_command_for_this_bus(console: Console, served: Served) -> None:
    """With the URL of the engine and the page, so that it adds here."""
    window = console.open("#/now?page=now:command")
    expect(window.locator(".empty pre")).to_have_text(
        re.compile(rf"^scratchbus add risk_alert .* --page now:command --url \S*{served.url.partition('//')[2]}$")
    )


@pytest.mark.browser
def test_an_empty_page_of_a_bus_in_memory_shows_no_command(open_console: Opened) -> None:
    """Another process cannot reach this bus."""
    with serve("memory://") as served:
        console = open_console(served, sees_failures=True)  # when the server ends
        with console.window.expect_response("**/api/v1/status"):
            window = console.open("#/now")
        settle(window)
        expect(window.locator(".empty").get_by_role("button", name="Add an observation")).to_be_visible()
        expect(window.locator(".empty pre")).to_have_count(0)
