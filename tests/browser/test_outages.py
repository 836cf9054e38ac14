"""While the server is away, and after a token has ended: what the console says, and what it keeps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from scratchbus import Bus, McpIdentity, McpTokens
from tests.browser.conftest import Opened, settle, sign_in
from tests.browser.serving import Served, serve

pytestmark = pytest.mark.browser


def test_a_dialog_signs_in_again_and_keeps_what_was_written(
    open_console: Opened, served: Served, bus: Bus, tmp_path: Path
) -> None:
    """The dialog covers the banner, so it has one of its own; then the form can be sent again."""
    tokens = McpTokens(tmp_path / "tokens.yaml")
    first, second = (
        tokens.add(name, McpIdentity.of(name), scopes=["read", "publish"]) for name in ("expires", "stays")
    )
    with serve(served.url, tokens=tmp_path / "tokens.yaml") as strict:
        console = open_console(strict, sees_failures=True)
        sign_in(console.window, first)
        window = console.open("#/now?page=outages:token")
        window.wait_for_selector(".slider")
        window.keyboard.press("a")
        dialog = window.get_by_role("dialog")
        dialog.get_by_label("Content").fill("half written")
        tokens.revoke("expires")
        dialog.get_by_role("button", name="Add").click()
        expect(dialog.get_by_text("You are not signed in.")).to_be_visible()
        expect(dialog.get_by_role("alert")).to_have_count(0)
        dialog.get_by_label("Token").fill(second)
        dialog.get_by_role("button", name="Sign in").click()
        expect(dialog.get_by_role("alert")).to_have_text(re.compile("You were signed out. Send it again."))
        expect(dialog.get_by_text("You are not signed in.")).to_have_count(0)
        expect(dialog.get_by_label("Content")).to_have_value("half written")
        dialog.get_by_role("button", name="Add").click()
        console.expect_rows("half written")
    assert [each.source for each in bus.page("outages:token").active()] == ["stays"]


def test_a_form_sent_while_the_server_is_away_can_be_sent_again(open_console: Opened, served: Served) -> None:
    """The dialog says why it was not sent, and keeps what was written."""
    console = open_console(served, sees_failures=True)
    window = console.open("#/now?page=outages:form")
    window.keyboard.press("a")
    dialog = window.get_by_role("dialog")
    dialog.get_by_label("Content").fill("half written")
    window.context.set_offline(True)
    dialog.get_by_role("button", name="Add").click()
    expect(dialog.get_by_text("The server does not answer.")).to_be_visible()
    expect(dialog.get_by_role("alert")).to_contain_text("Not reached")
    expect(dialog.get_by_role("alert")).to_contain_text("What you wrote stays here")
    window.context.set_offline(False)
    expect(dialog.get_by_text("The server does not answer.")).to_have_count(0)
    dialog.get_by_role("button", name="Add").click()
    console.expect_rows("half written")


@pytest.mark.parametrize(
    "part", ["lib/time.js", "ui/timebar.js", "views/story.css", "views/story/web.js", "vendor/dagre.js"]
)
def test_a_part_that_could_not_be_loaded_is_named_and_loaded_again(
    open_console: Opened, served: Served, bus: Bus, part: str
) -> None:
    """A browser does not ask again for a module that it could not fetch, until the page is loaded again."""
    page = bus.page("outages:part")
    told = page.add("observation", "told", evidence=[page.add("observation", "its evidence").id])
    console = open_console(served, sees_failures=True)
    failed: list[str] = []

    def fail_first(route: Route) -> None:
        if failed:
            route.continue_()
        else:
            failed.append(route.request.url)
            route.abort()

    console.window.goto("about:blank")
    console.window.route(f"**/console/{part}", fail_first)
    console.window.goto(f"{served.origin}/#/story?page=outages:part&selected={told.id}")
    is_all = part == "lib/time.js"
    said = "The console could not be loaded" if is_all else "A part of the console is missing"
    expect(console.window.get_by_text(said)).to_be_visible()
    console.window.get_by_role("button", name="Load again").click()
    expect(console.window.locator(".graph-node")).to_have_count(2)
    expect(console.window.locator(".slider")).to_be_visible()
    expect(console.window.get_by_text(said)).to_have_count(0)


def test_the_banner_alone_says_that_the_server_is_away(open_console: Opened, served: Served) -> None:
    """The parts of a view keep what they show, and do not repeat the banner."""
    console = open_console(served, sees_failures=True)
    window = console.open("#/operations")
    letters = window.get_by_role("region", name="Dead letters").first.locator("p.hint, table").first
    expect(letters).to_be_visible()
    window.context.set_offline(True)
    expect(window.get_by_text("The server does not answer.")).to_be_visible()
    expect(window.locator("main [role=alert]")).to_have_count(0)
    expect(letters).to_be_visible()
    with window.expect_event("requestfinished", lambda request: request.url.endswith("/readyz")):
        window.context.set_offline(False)
    expect(window.get_by_text("The server does not answer.")).to_have_count(0)
    expect(window.locator("main [role=alert]")).to_have_count(0)


@pytest.mark.parametrize("has_tokens", [False, True], ids=["key", "token"])
def test_the_banner_names_what_signs_in(
    open_console: Opened, served: Served, tmp_path: Path, *, has_tokens: bool
) -> None:
    """Only a server without a tokens file has printed an address with a key."""
    tokens = tmp_path / "tokens.yaml" if has_tokens else None
    if tokens is not None:
        McpTokens(tokens).add("other", McpIdentity.of("other"), scopes=["read"])
    with serve(served.url, tokens=tokens) as other:
        window = open_console(other, sees_failures=True).window
        window.context.clear_cookies()
        window.goto("about:blank")
        window.goto(other.origin)
        banner = window.locator(".banner.signed-out")
        expected = "Enter a token of this server." if has_tokens else "printed, which has its key, or enter the key."
        expect(banner).to_contain_text(expected)
        window.goto("about:blank")  # before the server ends, of which it may still load parts


@pytest.mark.parametrize("before", [0, 520])
def test_the_log_keeps_its_place_and_its_pause_through_an_outage(
    open_console: Opened, served: Served, bus: Bus, before: int
) -> None:
    """What came meanwhile is above what is shown, or waits while the log is paused."""
    page = bus.page(f"outages:log-{before}")
    for number in range(90):
        newest = page.add("observation", f"event {number}")
    console = open_console(served, sees_failures=True)
    window = console.open(f"#/log?q=page:outages:log-{before}")
    body = window.locator(".table-body")
    expect(window.get_by_role("row").filter(has_text="event 89")).to_be_visible()
    body.evaluate("each => { each.scrollTop = 28 * 40; }")
    row = window.locator(".table-row").filter(has_text="event 45")
    row.click()
    expect(window.locator(".raw")).to_be_visible()
    top = row.evaluate("each => each.getBoundingClientRect().top")
    window.keyboard.press("z")
    for number in range(before):
        page.update(newest.id, content=f"waiting {number}")
    if before:
        expect(window.get_by_role("button", name=f"Go on, {before} new")).to_be_visible()
    with window.expect_response(lambda answer: answer.ok and "/events?last=500" in answer.url):
        window.context.set_offline(True)
        expect(window.get_by_text("The server does not answer.")).to_be_visible()
        page.add("observation", "meanwhile")
        window.context.set_offline(False)
    expect(window.get_by_role("button", name=f"Go on, {before + 1} new")).to_be_visible()
    expect(window.locator(".raw")).to_be_visible()
    window.keyboard.press("z")
    expect(window.locator(".toolbar-count")).to_contain_text(f"{before + 91} ")
    settle(window)
    expect(window.locator(".raw")).to_be_visible()
    assert abs(row.evaluate("each => each.getBoundingClientRect().top") - top) < 80  # the banner came and went
