"""The shell: outages, keyboard, narrow windows, colours, accessibility."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page as Window
from playwright.sync_api import Route, expect

from scratchbus import Bus, McpIdentity, McpTokens, stop_engine
from tests.browser.conftest import Console, Opened, settle, sign_in
from tests.browser.serving import Served, serve
from tests.faults.servers import DURABLE, Server, embedded_binary
from tests.waiting import eventually

CONSOLE = Path(__file__).parents[2] / "scratchbus" / "http" / "console"

HIDE = """hidden => {
    Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""
"""Makes the page believe that its window is hidden, or visible again."""


def violations(window: Window) -> list[str]:
    """Return the violations that axe finds in the document."""
    found = Axe().run(window).response["violations"]
    return [f"{each['id']}: {node['html'][:200]} {node['failureSummary']}" for each in found for node in each["nodes"]]


def fill(bus: Bus, name: str) -> str:
    """Add observations of all sorts to a page; return the id of one with every field."""
    page = bus.page(name)
    ground = page.add("observation", "what it rests on", ttl="40s")
    rich = page.add(
        "risk_alert", "has everything", tags=["card", "eu"], evidence=[ground.id], context={"user": 42}, owner="ops"
    )
    page.add("pattern_detected", "rests on it", evidence=[rich.id])
    page.claim(rich.id, ttl="10m")
    page.link(rich.id, "ticket-1")
    page.review(page.add("dependency", "doubtful").id, reason="not sure")
    page.resolve(page.add("reminder", "done").id)
    return rich.id


def check_every_view(console: Console, name: str, id: str) -> list[str]:
    """Open each view, dialog and menu; return all violations that axe finds."""
    found: list[str] = []

    def look(window: Window, where: str) -> None:
        window.wait_for_selector(".slider")
        settle(window)
        found.extend(f"{where}: {each}" for each in violations(window))

    window = console.open(f"#/now?page={name}&q=status:all&selected={id}")
    expect(window.locator(".detail").get_by_text("ticket-1")).to_be_visible()
    look(window, "now")
    for key, heading in (("x", "Refute"), ("a", "Add an observation"), ("?", "Keyboard shortcuts"), ("p", "Page")):
        window.keyboard.press(key)
        expect(window.get_by_role("heading", name=re.compile(heading))).to_be_visible()
        look(window, heading)
        window.keyboard.press("Escape")
        expect(window.get_by_role("dialog")).to_be_hidden()
    window.get_by_role("button", name="Colours").click()
    look(window, "menu")
    window.keyboard.press("Escape")
    window.keyboard.press("ArrowLeft")
    expect(window.locator("main.past")).to_be_visible()
    look(window, "past")
    look(console.open("#/now?page=shell:empty"), "empty")
    window = console.open(f"#/log?q=page:{name}")
    window.get_by_role("row").nth(1).click()
    look(window, "log")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_passes_axe(open_console: Opened, served: Served, bus: Bus, scheme: str) -> None:
    """Checks the page with a selected observation."""
    id = fill(bus, f"shell:axe-{scheme}")
    console = open_console(served, scheme=scheme)
    window = console.open(f"#/now?page=shell:axe-{scheme}&q=status:all&selected={id}")
    expect(window.locator(".detail").get_by_text("ticket-1")).to_be_visible()
    window.wait_for_selector(".slider")
    assert violations(window) == []


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_and_dialog_passes_axe(
    open_console: Opened, served: Served, bus: Bus, scheme: str, width: int
) -> None:
    """Checks every view, dialog and menu of the shell, in both colour schemes, wide and narrow."""
    id = fill(bus, f"shell:all-{scheme}-{width}")
    console = open_console(served, scheme=scheme, width=width)
    assert check_every_view(console, f"shell:all-{scheme}-{width}", id) == []


@pytest.fixture
def engine() -> Iterator[Server]:
    """An engine that only the test restarts."""
    server = Server(embedded_binary(), tcp=False, **DURABLE).start()
    yield server
    server.close()


@pytest.mark.browser
def test_the_page_recovers_when_the_engine_restarts(open_console: Opened, engine: Server) -> None:
    """A banner shows while the engine is away; afterwards the page continues by itself and misses nothing."""
    with serve(engine.url) as served, Bus.connect(engine.url, source="daemon") as bus:
        page = bus.page("main")
        page.add("observation", "before")
        console = open_console(served, sees_failures=True)
        window = console.open()
        console.expect_rows("before")
        engine.kill()
        expect(window.get_by_text("The engine is away.")).to_be_visible(timeout=20_000)
        assert console.rows() == ["before"]
        engine.start()
        page.add("observation", "after")
        expect(window.get_by_text("The engine is away.")).to_be_hidden(timeout=20_000)
        console.expect_rows("after", "before")
        page.add("observation", "live again")
        console.expect_rows("live again", "after", "before")


@pytest.mark.browser
def test_an_archive_that_is_away_is_not_an_engine_that_is_away(open_console: Opened, served: Served) -> None:
    """The view says what is wrong, and is not loaded again and again."""
    console = open_console(served, sees_failures=True)
    window = console.window
    asked: list[str] = []
    probes: list[str] = []
    window.on("request", lambda request: probes.append(request.url) if request.url.endswith("/readyz") else None)
    body = {"type": "urn:scratchbus:problem:archive-unavailable", "status": 503, "detail": "the archive is away"}

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(body))

    window.route("**/api/v1/archive", refuse)
    window.clock.install()
    console.open("#/operations")
    expect(window.get_by_role("region", name="Operations").get_by_text("the archive is away")).to_be_visible()
    before = len(probes)
    while len(probes) < before + 2:
        with window.expect_response("**/readyz"):
            window.clock.run_for(5_000)  # until the next probe
    settle(window)
    expect(window.get_by_text("The engine is away.")).to_be_hidden()
    assert len(asked) == 1


@pytest.mark.browser
def test_a_restarted_server_asks_to_sign_in_again(open_console: Opened, engine: Server) -> None:
    """A banner shows while the server is away; a new server on its port has another key."""
    with serve(engine.url) as served:
        console = open_console(served, sees_failures=True)
        window = console.open()
    expect(window.get_by_text("The server does not answer.")).to_be_visible(timeout=15_000)
    with serve(engine.url, int(served.origin.rpartition(":")[2])) as again:
        expect(window.get_by_text("You are not signed in.")).to_be_visible(timeout=15_000)
        sign_in(window, "not the key", "Key")
        expect(window.locator(".banner .field-error")).to_contain_text("This key is not valid here")
        sign_in(window, again.to_open.partition("key=")[2], "Key")
        expect(window.locator(".connection.live")).to_be_visible()
        with Bus.connect(engine.url, source="daemon") as bus:
            bus.page("main").add("observation", "after")
        console.expect_rows("after")


@pytest.mark.browser
def test_the_page_is_live_again_after_each_outage(open_console: Opened, engine: Server, tmp_path: Path) -> None:
    secret = McpTokens(tmp_path / "tokens.yaml").add("stays", McpIdentity.of("stays"), scopes=["read"])
    with serve(engine.url, tokens=tmp_path / "tokens.yaml") as served:
        console = open_console(served, sees_failures=True)
        window = console.window
        sign_in(window, secret)
        expect(window.locator(".connection.live")).to_be_visible()
        window.wait_for_selector(".slider")
    rows = list[str]()
    for outage in ("first", "second", "third"):
        expect(window.get_by_text("The server does not answer.")).to_be_visible()
        with ExitStack() as stack:
            with window.expect_response(lambda answer: answer.ok and "/observations?" in answer.url):
                port = int(served.origin.rpartition(":")[2])
                stack.enter_context(serve(engine.url, port, tokens=tmp_path / "tokens.yaml"))
            with Bus.connect(engine.url, source="daemon") as bus:  # only the stream can bring what follows
                bus.page("main").add("observation", f"after the {outage}")
            rows.insert(0, f"after the {outage}")
            console.expect_rows(*rows)


@pytest.mark.browser
def test_the_page_reloads_after_a_flush(open_console: Opened, engine: Server) -> None:
    """When the log was replaced, the console loads everything again and follows the new log."""
    with serve(engine.url) as served:
        with Bus.connect(engine.url, source="daemon") as bus:
            bus.page("main").add("observation", "of the old log")
        console = open_console(served, sees_failures=True)
        console.open()
        console.expect_rows("of the old log")
        with engine.client() as client:
            client.flushall()
        with Bus.connect(engine.url, source="daemon") as bus:
            bus.page("main").add("observation", "of the new log")
            console.expect_rows("of the new log")
            bus.page("main").add("observation", "and another")
            console.expect_rows("and another", "of the new log")


@pytest.mark.browser
def test_a_missing_sign_in_is_reported_once(open_console: Opened, served: Served, tmp_path: Path) -> None:
    """The banner says what to do, and parts of a view that could not be loaded do not repeat it."""
    McpTokens(tmp_path / "tokens.yaml").add("other", McpIdentity.of("other"), scopes=["read"])
    with serve(served.url, tokens=tmp_path / "tokens.yaml") as strict:
        window = open_console(strict, sees_failures=True).window
        for view in ("now", "story", "what-if", "memory", "log", "operations"):
            with window.expect_response(lambda answer: answer.status == 401 and "histogram" in answer.url):
                window.goto("about:blank")
                window.goto(f"{strict.origin}/#/{view}")
            expect(window.get_by_text("You are not signed in.")).to_be_visible()
            expect(window.get_by_text("this server needs a token")).to_have_count(0)


@pytest.mark.browser
def test_a_typed_token_signs_in(open_console: Opened, served: Served, tmp_path: Path) -> None:
    """Its characters go into the field, where they are no keys of the console, and no part of the address."""
    secret = McpTokens(tmp_path / "tokens.yaml").add("types", McpIdentity.of("types"), scopes=["read"])
    with serve(served.url, tokens=tmp_path / "tokens.yaml") as strict:
        window = open_console(strict, sees_failures=True).window
        expect(window.get_by_text("You are not signed in.")).to_be_visible()
        window.keyboard.type(secret)
        window.keyboard.press("Enter")
        expect(window.locator(".connection.live")).to_be_visible()
        assert secret[:10] not in window.url


@pytest.mark.browser
def test_a_revoked_token_is_signed_out(open_console: Opened, served: Served, tmp_path: Path) -> None:
    """Revoking a token ends its stream, and the console asks for another token."""
    tokens = McpTokens(tmp_path / "tokens.yaml")
    secret = tokens.add("leaves", McpIdentity.of("leaves"), scopes=["read"])
    with serve(served.url, tokens=tmp_path / "tokens.yaml") as strict:
        console = open_console(strict, sees_failures=True)
        window = console.window
        sign_in(window, secret)
        expect(window.locator(".connection.live")).to_be_visible()
        window.wait_for_selector(".slider")
        tokens.add("stays", McpIdentity.of("stays"), scopes=["read"])  # a file without tokens is refused
        window.evaluate(
            "Object.defineProperty(document, 'hidden', {value: true})"
        )  # so that only the stream notices it
        tokens.revoke("leaves")
        expect(window.get_by_text("You are not signed in.")).to_be_visible(timeout=30_000)


@pytest.mark.browser
def test_signing_in_from_another_tab_is_noticed(open_console: Opened, served: Served, tmp_path: Path) -> None:
    """When the tab is shown again."""
    tokens = McpTokens(tmp_path / "tokens.yaml")
    secret = tokens.add("two-tabs", McpIdentity.of("two-tabs"), scopes=["read"])
    with serve(served.url, tokens=tmp_path / "tokens.yaml") as strict:
        window = open_console(strict, sees_failures=True).window
        expect(window.get_by_text("You are not signed in.")).to_be_visible()
        other = window.context.new_page()
        other.goto(strict.origin)
        sign_in(other, secret)
        expect(other.locator(".connection.live")).to_be_visible()
        window.evaluate(HIDE, True)
        window.evaluate(HIDE, False)
        expect(window.locator(".connection.live")).to_be_visible(timeout=15_000)
        expect(window.get_by_text("You are not signed in.")).to_be_hidden()


def test_the_keyboard_alone_is_enough(console: Console, bus: Bus) -> None:
    """Find a row, select it and resolve it without a pointer."""
    page = bus.page("shell:keys")
    added = page.add("risk_alert", "needs someone")
    page.add("observation", "another")
    window = console.open("#/now?page=shell:keys")
    console.expect_rows("needs someone", "another")
    window.keyboard.press("/")
    window.keyboard.type("needs")
    console.expect_rows("needs someone")
    window.keyboard.press("Enter")
    window.keyboard.press("Enter")
    expect(window.locator(".detail").get_by_text("needs someone")).to_be_visible()
    window.keyboard.press("e")
    expect(window.get_by_role("dialog")).to_be_visible()
    window.keyboard.type("dealt with")
    window.keyboard.press("Enter")
    expect(window.get_by_role("dialog")).to_be_hidden()
    found = page.get(added.id)
    assert found is not None
    assert (found.status, found.reason) == ("resolved", "dealt with")


@pytest.mark.browser
def test_closing_a_dialog_returns_the_focus(console: Console, bus: Bus) -> None:
    """Both a button and a row that opened the dialog get the focus back."""
    bus.page("shell:focus").add("observation", "there")
    window = console.open("#/now?page=shell:focus")
    row = window.get_by_role("row", name=re.compile("there"))
    for opener, key in ((window.get_by_role("button", name="Page: shell:focus"), "Enter"), (row, "e"), (row, "p")):
        opener.focus()
        window.keyboard.press(key)
        expect(window.get_by_role("dialog")).to_be_visible()
        window.keyboard.press("Escape")
        expect(window.get_by_role("dialog")).to_be_hidden()
        expect(opener).to_be_focused()


@pytest.mark.browser
def test_focus_moves_to_the_next_row_when_one_leaves(console: Console, bus: Bus) -> None:
    """When the focused row disappears, the next one gets the focus, after the last one the previous."""
    page = bus.page("shell:triage")
    for content in ("fourth", "third", "second", "first"):
        page.add("observation", content)
    window = console.open("#/now?page=shell:triage")
    console.expect_rows("first", "second", "third", "fourth")
    row = lambda content: window.get_by_role("row", name=re.compile(content))  # noqa: E731
    row("first").focus()
    window.keyboard.press("j")
    for content, next_one in (("second", "third"), ("third", "fourth"), ("fourth", "first")):
        expect(row(content)).to_be_focused()
        window.keyboard.press("e")
        expect(window.get_by_role("dialog")).to_contain_text(content)
        window.keyboard.press("Enter")
        expect(row(content)).to_be_hidden()
        expect(row(next_one)).to_be_focused()
    console.expect_rows("first")


@pytest.mark.browser
def test_a_fast_next_row_key_moves_the_focus(console: Console, bus: Bus) -> None:
    """Even between the activation of a row and the next frame."""
    for content in ("second", "first"):
        bus.page("shell:fast").add("observation", content)
    window = console.open("#/now?page=shell:fast")
    console.expect_rows("first", "second")
    window.get_by_role("row", name=re.compile("first")).evaluate("""async (row) => {
        row.focus();
        await new Promise((resolve) => setTimeout(resolve));
        row.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true }));
    }""")
    expect(window.get_by_role("row", name=re.compile("second"))).to_be_focused()


@pytest.mark.browser
def test_focus_moves_on_when_a_row_leaves_behind_its_dialog(console: Console, bus: Bus) -> None:
    """The row in its place gets the focus when the dialog is closed."""
    page = bus.page("shell:leaving")
    ids = [page.add("observation", content).id for content in ("third", "second", "first")]
    window = console.open("#/now?page=shell:leaving")
    console.expect_rows("first", "second", "third")
    row = lambda content: window.get_by_role("row", name=re.compile(content))  # noqa: E731
    row("second").focus()
    window.keyboard.press("e")
    expect(window.get_by_role("dialog")).to_contain_text("second")
    page.resolve(ids[1])
    expect(window.locator("[role=row]", has_text="second")).to_have_count(0)
    window.keyboard.press("Escape")
    expect(row("third")).to_be_focused()


@pytest.mark.browser
def test_tab_reaches_every_part_and_wraps_around(console: Console, bus: Bus) -> None:
    """Tab moves through all parts of the page without a trap."""
    fill(bus, "shell:tab")
    window = console.open("#/now?page=shell:tab")
    window.wait_for_selector(".slider")
    names = []
    for _ in range(60):
        window.keyboard.press("Tab")
        names.append(window.evaluate("document.activeElement.getAttribute('role') ?? document.activeElement.tagName"))
    assert {"A", "BUTTON", "combobox", "row", "slider", "INPUT"} <= set(names)
    assert names.count("slider") > 1


@pytest.mark.browser
def test_a_narrow_window_does_not_scroll_sideways(open_console: Opened, served: Served, bus: Bus) -> None:
    """At 360 px nothing is wider than the window, and an observation can be opened and closed."""
    id = fill(bus, "shell:narrow")
    console = open_console(served, width=360, height=740)
    with bus.subscribe("shell-narrow"):
        pass
    for address in ("#/now?page=shell:narrow", f"#/now?page=shell:narrow&selected={id}", "#/log", "#/operations"):
        window = console.open(address)
        window.wait_for_selector(".slider")
        if address == "#/operations":
            window.get_by_role("region", name="Subscriptions").get_by_role("table").wait_for()
        assert window.evaluate("document.documentElement.scrollWidth") <= 360
        assert window.evaluate("(nav => nav.scrollWidth - nav.clientWidth)(document.querySelector('nav'))") == 0
    window = console.open("#/now?page=shell:narrow")
    window.get_by_role("row", name=re.compile("has everything")).click()
    expect(window.get_by_role("button", name="Resolve")).to_be_visible()
    window.get_by_role("button", name="Close").click()
    expect(window.get_by_role("row", name=re.compile("has everything"))).to_be_visible()


@pytest.mark.browser
def test_long_names_fit_a_narrow_window(open_console: Opened, served: Served, bus: Bus) -> None:
    """The names of a page, of its sources and of a scope may be as long as they can be."""
    name = "shell:" + "p" * 122
    bus.page(name).add("observation", "there")
    bus.facts("s" * 118).assert_fact("shop", "runs_on", "Node 24")
    console = open_console(served, width=360)
    for view in (f"now?page={name}&without={'q' * 128}", f"memory?scope={'s' * 118}"):
        window = console.open(f"#/{view}")
        window.get_by_role("row", name=re.compile("there|Node 24")).wait_for()
        assert window.evaluate("document.documentElement.scrollWidth") <= 360, view
    window.keyboard.press("p")
    entries = window.get_by_role("dialog").locator(".page-list")
    expect(entries.get_by_role("button", name=name)).to_be_visible()
    assert entries.evaluate("each => each.scrollWidth - each.clientWidth") == 0


@pytest.mark.browser
def test_every_view_link_is_visible_at_every_width(open_console: Opened, served: Served, bus: Bus) -> None:
    """No link is cut off, even with a long page name."""
    bus.page("shell:a-page-with-a-long-name").add("observation", "there")
    window = open_console(served, width=1400).open("#/now?page=shell:a-page-with-a-long-name")
    cut = []
    for width in range(360, 1400, 20):
        window.set_viewport_size({"width": width, "height": 740})
        if window.evaluate("(nav => nav.scrollWidth - nav.clientWidth)(document.querySelector('nav'))"):
            cut.append(width)
    assert not cut


@pytest.mark.browser
def test_views_do_not_change_each_others_styles(console: Console, bus: Bus) -> None:
    """A view looks the same whether it is opened first or after all others."""
    id = fill(bus, "shell:styles")
    bus.notes("shell-styles").add("a note")
    bus.facts("shell-styles").assert_fact("shop", "runs_on", "Node 24")
    views = {
        "story": f"page=shell:styles&selected={id}",
        "what-if": "page=shell:styles",
        "memory": "scope=shell-styles",
        "log": "q=page:shell:styles",
        "operations": "",
    }
    sizes = """() => Object.fromEntries([...document.querySelectorAll('main [class]:not([class=""])')]
        .map(each => [each, getComputedStyle(each)]).map(([each, style]) =>
            [`${each.parentElement.className} > ${each.className}`, `${style.display} ${style.padding}`]))"""
    signs = {"story": ".graph-node", "what-if": ".sides-row", "memory": ".table-row", "log": ".table-row"}

    def look(window: Window, view: str) -> dict[str, str]:
        window.evaluate(f"location.hash = '#/{view}?{views[view]}'")
        window.locator(signs.get(view, ".grid-box td")).first.wait_for()
        found: dict[str, str] = window.evaluate(sizes)
        return found

    first = {view: look(console.open("#/now"), view) for view in views}
    window = console.open("#/now")
    for view in views:
        look(window, view)
    for view in views:
        after = look(window, view)
        shared = first[view].keys() & after.keys()
        assert len(shared) > 5
        assert {each: after[each] for each in shared} == {each: first[view][each] for each in shared}


@pytest.mark.browser
@pytest.mark.parametrize("view", ["now", "operations", "memory?session=shell:tab&tab=recall"])
def test_the_first_tab_reaches_the_link_to_the_content(console: Console, bus: Bus, view: str) -> None:
    """Showing the current view in the navigation does not let Tab begin after it."""
    bus.notes("shell:tab").add("a note")
    window = console.open(f"#/{view}")
    expect(window.locator("main :focus, main section, main [tabindex='0']").first).to_be_visible()
    settle(window)
    window.keyboard.press("Tab")
    expect(window.get_by_role("link", name="Skip to content")).to_be_focused()


@pytest.mark.browser
@pytest.mark.parametrize("address", ["#/%E0", "#/now?page=&at="])
def test_a_mangled_address_shows_the_page(console: Console, bus: Bus, address: str) -> None:
    """A link that is cut off or badly escaped still opens the console."""
    bus.page("main").add("observation", "there")
    window = console.open(address)
    expect(window.get_by_role("link", name="Now")).to_have_attribute("aria-current", "page")
    expect(window.locator(".table-row", has_text="there").first).to_be_visible()


@pytest.mark.browser
@pytest.mark.parametrize("view", ["now", "log"])
def test_an_invalid_moment_offers_the_way_back_to_live(
    open_console: Opened, served: Served, bus: Bus, view: str
) -> None:
    """The view shows the error, the moment as in the address, and a button back to live."""
    bus.page("main").add("observation", "there")
    window = open_console(served, sees_failures=True).open(f"#/{view}?at=noon")
    expect(window.locator(".problem")).to_contain_text("'noon' is not a")
    expect(window.get_by_role("textbox", name="Moment")).to_have_value("noon")
    window.get_by_role("button", name="Back to live").click()
    expect(window.locator(".table-row", has_text="there").first).to_be_visible()


@pytest.mark.browser
def test_a_wrong_token_error_fits_a_narrow_window(open_console: Opened, served: Served, tmp_path: Path) -> None:
    """The banner describes the problem for people, and is not wider than the window."""
    McpTokens(tmp_path / "tokens.yaml").add("right", McpIdentity.of("right"), scopes=["read"])
    with serve(served.url, tokens=tmp_path / "tokens.yaml") as strict:
        window = open_console(strict, width=390, sees_failures=True).window
        sign_in(window, "wrong")
        said = window.get_by_role("alert").filter(has_text="This token is not valid here")
        expect(said).to_be_visible()
        assert window.evaluate("(each => each.scrollWidth - each.clientWidth)(document.querySelector('.banner'))") == 0


@pytest.mark.browser
def test_the_time_bar_of_an_empty_bus_has_no_times(open_console: Opened, tmp_path: Path) -> None:
    """The bar says that there are no events yet, and shows no time of 1970."""
    with serve(f"embedded://{tmp_path}") as new:
        window = open_console(new, sees_failures=True).open("#/now")
        expect(window.locator(".slider-end")).to_have_text("No events yet")
    stop_engine(tmp_path)


@pytest.mark.slow
def test_every_module_of_the_first_paint_is_preloaded() -> None:
    """The page lists every module of the first paint, so that none is discovered only in another one."""
    found: set[Path] = set()
    waiting = [CONSOLE / "app.js"]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            named = re.findall(r'(?:from|import)\s*"(\.[^"]+)"', module.read_text())
            waiting += [(module.parent / name).resolve() for name in named]
    preloaded = re.findall(r'modulepreload" href="/console/([^"]+)"', (CONSOLE / "index.html").read_text())
    assert sorted(preloaded) == sorted(str(each.relative_to(CONSOLE)) for each in found - {CONSOLE / "app.js"})


@pytest.mark.alone
@pytest.mark.browser
def test_first_paint_of_a_new_server_is_quick(open_console: Opened, tmp_path: Path) -> None:
    """The first window of a server, without a cache, before any bus is open."""
    times = []
    for number in range(3):
        with serve(f"embedded://{tmp_path / str(number)}") as new:
            window = open_console(new, sees_failures=True).window
            window.wait_for_selector(".connection.live")
            times.append(window.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            window.close()
        stop_engine(tmp_path / str(number))
    assert min(times) < 500


@pytest.mark.alone
@pytest.mark.browser
def test_first_paint_sends_less_than_200_kb(console: Console, bus: Bus) -> None:
    """Up to the complete page with its time bar; a start without a cache is also quick."""
    bus.page("shell:paint").add("observation", "there")
    client = console.window.context.new_cdp_session(console.window)
    client.send("Network.enable")
    client.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sent: list[float] = []
    client.on("Network.loadingFinished", lambda event: sent.append(event["encodedDataLength"]))
    times = []
    for _ in range(5):
        sent.clear()
        window = console.open("#/now?page=shell:paint")
        console.expect_rows("there")
        window.wait_for_selector(".time-bars canvas")
        times.append(window.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        assert sum(sent) < 200_000
    assert min(times) < 500


@pytest.mark.browser
def test_changes_behind_a_hidden_window_are_marked(open_console: Opened, served: Served, bus: Bus) -> None:
    """New, changed and removed rows are marked until the person has seen them."""
    page = bus.page("shell:away")
    gone, changed = page.add("observation", "goes"), page.add("observation", "changes")
    page.add("observation", "stays")
    console = open_console(served)
    window = console.open("#/now?page=shell:away")
    console.expect_rows("stays", "changes", "goes")
    window.evaluate(HIDE, True)
    settle(window)
    page.archive(gone.id)
    page.update(changed.id, confidence=0.2)
    page.add("observation", "comes")
    window.evaluate(HIDE, False)
    console.expect_rows("comes", "stays", "changes")
    expect(window.get_by_text("1 new, 1 changed, 1 left since you looked away")).to_be_visible()
    eventually(lambda: window.locator(".table-row.changed").count() == 2, "two marks")
    window.keyboard.press("m")
    expect(window.locator(".away")).to_be_hidden()
    assert window.locator(".table-row.changed").count() == 0


@pytest.mark.browser
def test_nine_tabs_of_one_browser_show_the_page(open_console: Opened, served: Served, bus: Bus) -> None:
    """A browser has six connections to one server; those in the background catch up when they are seen."""
    page = bus.page("shell:tabs")
    page.add("observation", "first")
    console = open_console(served)
    seen = console.open("#/now?page=shell:tabs")
    seen.context.add_init_script("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    tabs = [seen.context.new_page() for _ in range(8)]
    for tab in tabs:
        tab.goto(f"{served.origin}/#/now?page=shell:tabs")
        expect(tab.locator(".table-body .table-row")).to_have_count(1)
    page.add("observation", "second")
    console.expect_rows("second", "first")
    for tab in (tabs[0], tabs[-1]):
        tab.evaluate(HIDE, False)
        expect(tab.locator(".table-body .table-row")).to_have_count(2)


@pytest.mark.browser
def test_a_hidden_window_leaves_its_connection_to_others(open_console: Opened, served: Served, bus: Bus) -> None:
    """Its stream ends after some seconds; it catches up when it is seen again."""
    page = bus.page("shell:hidden")
    page.add("observation", "first")
    console = open_console(served)
    console.window.clock.install()
    with console.window.expect_response("**/api/v1/events?after=*"):
        window = console.open("#/now?page=shell:hidden")
    console.expect_rows("first")
    with window.expect_event("requestfailed", lambda request: "/api/v1/events?after=" in request.url):
        window.evaluate(HIDE, True)
        window.clock.run_for(5_000)
    page.add("observation", "second")
    window.evaluate(HIDE, False)
    console.expect_rows("second", "first")


@pytest.mark.browser
def test_long_words_are_broken_at_a_narrow_width(open_console: Opened, served: Served, bus: Bus) -> None:
    """A reason, a title of a task and a tag without spaces make no view wider than the window."""
    page = bus.page("shell:words")
    id = page.add("observation", "w" * 900, tags=["t" * 60]).id
    page.refute(id, reason="r" * 600)
    bus.begin_task("shell-words", "t" * 300)
    console = open_console(served, width=360)
    for address, view, word in (
        (f"story?page={page.name}&selected={id}", ".story", "r" * 600),
        ("memory?session=shell-words&tab=tasks", ".memory-body", "t" * 300),
    ):
        window = console.open(f"#/{address}")
        expect(window.get_by_text(word).first).to_be_visible()
        assert window.evaluate(f"(each => each.scrollWidth - each.clientWidth)(document.querySelector('{view}'))") == 0


@pytest.mark.browser
def test_a_low_window_shows_several_rows(open_console: Opened, served: Served, bus: Bus) -> None:
    """A laptop zoomed to 200 % has 640 by 400 pixels, a phone on its side fewer; the rows keep a third."""
    page = bus.page("shell:low")
    for number in range(30):
        page.add(("observation", "risk_alert")[number % 2], f"row {number}")
    for number in range(30):
        bus.facts("shell-low").assert_fact(f"shop {number}", "runs_on", "Node 24")
    for width, height in ((640, 400), (667, 375), (1280, 500)):
        console = open_console(served, width=width, height=height)
        for view in ("now?page=shell:low", "memory?scope=shell-low", "log"):
            body = console.open(f"#/{view}").locator(".table-body")
            expect(body.get_by_role("row").first).to_be_visible()
            console.window.wait_for_selector(".slider")
            settle(console.window)
            box = body.bounding_box()
            assert box is not None
            assert box["height"] >= 0.35 * height, f"{view} at {width} by {height}"
            assert console.window.evaluate("document.documentElement.scrollWidth <= innerWidth"), view


@pytest.mark.browser
def test_a_refusal_of_a_request_from_before_the_sign_in_does_not_sign_out(
    open_console: Opened, served: Served, tmp_path: Path
) -> None:
    """It arrives when the token is already accepted."""
    tokens = McpTokens(tmp_path / "tokens.yaml")
    secret = tokens.add("late", McpIdentity.of("late"), scopes=["read"])
    with serve(served.url, tokens=tmp_path / "tokens.yaml") as strict:
        window = open_console(strict, sees_failures=True).window
        expect(window.get_by_text("You are not signed in.")).to_be_visible()
        held: list[Route] = []
        window.route(re.compile("/types$"), lambda route: held.append(route) if not held else route.continue_())
        window.evaluate("() => void import('/console/lib/connection.js').then(module => module.reloadAll())")
        eventually(lambda: window.evaluate("true") and held, "the request")
        sign_in(window, secret)
        expect(window.locator(".connection.live")).to_be_visible()
        with window.expect_response(lambda response: response.status == 401):
            held[0].fulfill(status=401, json={"title": "Unauthenticated"})
        settle(window)
        expect(window.locator(".connection.live")).to_be_visible()


@pytest.mark.browser
def test_signing_out_leaves_nothing_and_lets_another_sign_in(
    open_console: Opened, served: Served, bus: Bus, tmp_path: Path
) -> None:
    """The menu names the caller and the scopes; after signing out, what was shown is gone."""
    bus.page("shell:out").add("observation", "for ann's eyes")
    tokens = McpTokens(tmp_path / "tokens.yaml")
    ann = tokens.add("ann", McpIdentity.of("ann"), scopes=["read", "act"])
    bob = tokens.add("bob", McpIdentity.of("bob"), scopes=["memory"])
    with serve(served.url, tokens=tmp_path / "tokens.yaml") as strict:
        console = open_console(strict, sees_failures=True)
        window = console.window
        window.goto(f"{strict.origin}/#/now?page=shell:out")
        sign_in(window, ann)
        console.expect_rows("for ann's eyes")
        window.get_by_role("button", name="Signed in as ann").click()
        expect(window.get_by_role("menuitem", name="ann")).to_contain_text("read, act")
        settle(window)
        assert not violations(window)
        window.get_by_role("menuitem", name="Sign out").click()
        expect(window.get_by_text("You are not signed in.")).to_be_visible()
        expect(window.get_by_text("for ann's eyes")).to_have_count(0)
        sign_in(window, bob)
        expect(window.get_by_role("button", name="Signed in as bob")).to_be_visible()
        expect(window.locator(".connection")).to_have_text("Not live")


@pytest.mark.browser
def test_a_theme_applies_to_all_tabs(console: Console) -> None:
    """A tab that is open follows another one."""
    window = console.open("#/now?page=shell:tabs")
    other = window.context.new_page()
    other.goto(f"{console.served.origin}/#/now?page=shell:tabs")
    expect(other.locator(".connection.live")).to_be_visible()
    other.get_by_role("button", name="Colours").click()
    other.get_by_role("menuitemradio", name="Dark").click()
    expect(window.locator("html")).to_have_attribute("data-theme", "dark")


def change_scopes(tokens: Path, before: str, after: str) -> None:
    """Change the scopes of the one token of a file, like an editor."""
    changed = tokens.read_text().replace(before, after)
    assert changed != tokens.read_text()
    (tokens.parent / "changed").write_text(changed)
    (tokens.parent / "changed").chmod(0o600)
    (tokens.parent / "changed").replace(tokens)


@contextmanager
def asking_for_a_token(
    open_console: Opened, served: Served, tokens: Path, scopes: list[str], page: str
) -> Iterator[tuple[Console, str]]:
    """Open the console of a server with one token of these scopes; yields it, before the sign-in, and the secret."""
    secret = McpTokens(tokens).add("ann", McpIdentity.of("ann"), scopes=scopes)
    with serve(served.url, tokens=tokens) as strict:
        console = open_console(strict, sees_failures=True)
        console.window.goto(f"{strict.origin}/#/now?page={page}")
        yield console, secret


@pytest.mark.browser
def test_lost_scopes_take_their_actions_and_rows_along(
    open_console: Opened, served: Served, bus: Bus, tmp_path: Path
) -> None:
    """A console that is open notices when the scopes of its token change."""
    bus.page("shell:lost").add("observation", "for readers")
    path = tmp_path / "tokens.yaml"
    with asking_for_a_token(open_console, served, path, ["read", "publish"], "shell:lost") as (console, secret):
        window = console.window
        sign_in(window, secret)
        console.expect_rows("for readers")
        expect(window.get_by_role("button", name="Add", exact=True)).to_be_visible()
        change_scopes(path, "publish", "act")
        expect(window.get_by_role("button", name="Add", exact=True)).to_have_count(0)
        console.expect_rows("for readers")
        expect(window.locator(".connection")).to_have_text("Live")
        change_scopes(path, "- read\n", "- memory\n")
        expect(window.locator(".connection")).to_have_text("Not live", timeout=20_000)
        expect(window.get_by_text("for readers")).to_have_count(0)


@pytest.mark.browser
def test_scopes_lost_before_the_stream_began_are_noticed(
    open_console: Opened, served: Served, bus: Bus, tmp_path: Path
) -> None:
    """The stream never ends because of them."""
    bus.page("shell:early").add("observation", "for readers")
    path = tmp_path / "tokens.yaml"
    with asking_for_a_token(open_console, served, path, ["read", "publish"], "shell:early") as (console, secret):
        window = console.window
        streams = re.compile(r"/events\?after=")
        held: list[Route] = []
        window.route(streams, lambda route: route.continue_() if held else held.append(route))
        with window.expect_request(streams):
            sign_in(window, secret)
        add = window.get_by_role("button", name="Add", exact=True)
        expect(add).to_be_visible()
        change_scopes(path, "publish", "act")
        held[0].continue_()
        expect(add).to_have_count(0)


@pytest.mark.browser
def test_a_granted_scope_is_noticed_when_the_window_is_shown(
    open_console: Opened, served: Served, bus: Bus, tmp_path: Path
) -> None:
    """What could not be read appears, and follows the events."""
    page = bus.page("shell:granted")
    page.add("observation", "for readers")
    path = tmp_path / "tokens.yaml"
    with asking_for_a_token(open_console, served, path, ["memory"], "shell:granted") as (console, secret):
        window = console.window
        sign_in(window, secret)
        expect(window.locator(".connection")).to_have_text("Not live")
        change_scopes(path, "  - memory\n", "  - read\n  - memory\n")
        window.evaluate("dispatchEvent(new Event('focus'))")
        console.expect_rows("for readers")
        page.add("observation", "added later")
        console.expect_rows("added later", "for readers")


@pytest.mark.browser
def test_quick_changes_of_the_address_are_written_together(console: Console) -> None:
    """Browsers ignore or refuse replacements in the history that come too fast, as while typing or dragging."""
    console.window.add_init_script(
        """window.replaced = 0;
        const replace = history.replaceState;
        history.replaceState = function (...given) {
            window.replaced++;
            return replace.apply(this, given);
        };"""
    )
    window = console.open("#/now?page=shell:quick")
    field = window.get_by_role("combobox", name="Filter")
    field.evaluate(
        """field => {
            for (let count = 0; count < 150; count++) {
                field.value += "x";
                field.dispatchEvent(new Event("input", {bubbles: true}));
            }
        }"""
    )
    window.get_by_role("link", name="Log").click()
    expect(window).to_have_url(re.compile("#/log"))
    window.go_back()
    expect(field).to_have_value("x" * 150)
    expect(window).to_have_url(re.compile("q=x{150}$"))
    assert window.evaluate("window.replaced") < 10


@pytest.mark.browser
def test_a_dialog_closes_when_another_page_is_shown(console: Console, bus: Bus) -> None:
    """After the back button, its form would write on a page that the user did not open it for."""
    bus.page("shell:back-1").add("observation", "on the first")
    bus.page("shell:back-2").add("observation", "on the second")
    window = console.open("#/now?page=shell:back-1")
    window.goto(f"{console.served.origin}/#/now?page=shell:back-2")
    console.expect_rows("on the second")
    window.keyboard.press("a")
    expect(window.get_by_role("dialog")).to_be_visible()
    window.go_back()
    console.expect_rows("on the first")
    expect(window.get_by_role("dialog")).to_have_count(0)


@pytest.mark.browser
def test_a_refused_question_who_speaks_is_not_asked_again_and_again(open_console: Opened, served: Served) -> None:
    """Another user of the machine is refused everything, also this."""
    console = open_console(served, sees_failures=True)
    asked: list[str] = []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=403, json={"type": "urn:scratchbus:problem:other-user", "detail": "someone else"})

    console.window.route("**/api/v1/me", refuse)
    console.window.clock.install()
    window = console.open("#/now?page=shell:other")
    window.wait_for_selector(".slider")
    for _ in range(5):
        window.clock.run_for(1_000)
        settle(window)
    assert len(asked) <= 3
