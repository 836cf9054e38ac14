"""Actions of a person on observations, and how to continue when one is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page as Window
from playwright.sync_api import expect

from scratchbus import Bus, McpIdentity, McpTokens, Observation, Page
from tests.browser.conftest import Console, Opened, sign_in
from tests.browser.serving import Served, serve

pytestmark = pytest.mark.browser


def act(window: Window, label: str, **fields: str) -> None:
    """Press the button of an action, fill in its form, and send it."""
    window.get_by_role("group", name="Actions").get_by_role("button", name=label, exact=True).click()
    for name, value in fields.items():
        window.get_by_label(name.replace("_", " ")).fill(value)
    send(window, label)


def send(window: Window, label: str) -> None:
    """Send the form that is open."""
    button = window.get_by_role("dialog").get_by_role("button", name=label, exact=True)
    expect(button).to_be_enabled()
    button.click()


def got(page: Page, id: str) -> Observation:
    """Return an observation."""
    found = page.get(id)
    assert found is not None
    return found


def test_every_action_reaches_the_bus(console: Console, bus: Bus) -> None:
    """Claim, renew, link, release, review, reopen, resolve and archive reach the bus and show in the panel."""
    page = bus.page("act:all")
    id = page.add("risk_alert", "to be acted on").id
    window = console.open(f"#/now?page=act:all&q=status:all&selected={id}")
    detail = window.locator(".detail")
    act(window, "Claim", For_how_long="5m")
    expect(detail.get_by_text(re.compile(r"4m [0-5]?\ds left"))).to_be_visible()
    act(window, "Renew the claim", For_how_long="2h")
    expect(detail.get_by_text(re.compile("1h 59m left"))).to_be_visible()
    act(window, "Link an action", Action_taken_because_of_it="ticket-9")
    expect(detail.get_by_text("ticket-9")).to_be_visible()
    assert got(page, id).links == ["ticket-9"]
    act(window, "Release the claim")
    expect(detail.get_by_role("button", name="Claim", exact=True)).to_be_visible()
    assert got(page, id).claim is None
    for label, status in (("Send to review", "pending review"), ("Reopen", "active"), ("Resolve", "resolved")):
        act(window, label, Reason=f"because: {label}")
        expect(detail.locator(".status")).to_have_text(status)
        if status != "active":
            expect(detail.get_by_text(f"because: {label}")).to_be_visible()
    act(window, "Archive")
    expect(detail.locator(".status")).to_have_text("archived")
    assert got(page, id).status == "archived"
    expect(detail.get_by_role("button", name="Resolve")).to_be_hidden()


def test_a_concurrent_change_is_shown_before_resolving(console: Console, bus: Bus) -> None:
    """A change by another client is shown, and one can continue with the new version."""
    page = bus.page("act:faster")
    id = page.add("risk_alert", "two look at it").id
    console.sees_failures = True
    window = console.open(f"#/now?page=act:faster&selected={id}")
    window.get_by_role("button", name="Resolve").click()
    page.update(id, content="it is worse than that")
    send(window, "Resolve")
    dialog = window.get_by_role("dialog")
    expect(dialog.get_by_text("Someone was faster.")).to_be_visible()
    expect(dialog.locator("ins")).to_have_text("it is worse than that")
    assert got(page, id).status == "active"
    dialog.get_by_role("button", name="Go on with version 2").click()
    send(window, "Resolve")
    expect(dialog).to_be_hidden()
    assert got(page, id).status == "resolved"


def test_resolving_an_observation_claimed_by_another_is_refused(console: Console, bus: Bus) -> None:
    """The refusal names the holder of the claim."""
    page = bus.page("act:claimed")
    id = page.add("risk_alert", "held").id
    console.sees_failures = True
    window = console.open(f"#/now?page=act:claimed&selected={id}")
    window.get_by_role("button", name="Resolve").click()
    page.claim(id, ttl="10m")
    send(window, "Resolve")
    expect(window.get_by_role("dialog").locator("ins", has_text="daemon")).to_be_visible()
    window.get_by_role("button", name=re.compile("Go on")).click()
    send(window, "Resolve")
    expect(window.get_by_role("dialog").get_by_role("alert")).to_contain_text("daemon")
    assert got(page, id).status == "active"


def test_the_refute_dialog_shows_dependents(console: Console, bus: Bus) -> None:
    """The dialog shows the dependents, who saw the observation, and what they did."""
    page = bus.page("act:refute")
    ground = page.add("observation", "it rained")
    page.add("pattern_detected", "it always rains", evidence=[ground.id])
    page.link(ground.id, "bought-umbrella")
    with Bus.connect(console.served.url, source="alice") as alice:
        alice.context.assemble(agent="alice", page="act:refute", record=True)
    window = console.open(f"#/now?page=act:refute&selected={ground.id}")
    window.get_by_role("button", name="Refute", exact=True).click()
    dialog = window.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="1 observation rests on it")).to_be_visible()
    expect(dialog.get_by_text("it always rains")).to_be_visible()
    expect(dialog.get_by_text("1 open one goes to review.")).to_be_visible()
    expect(dialog.get_by_text("agent alice")).to_be_visible()
    expect(dialog.get_by_text("bought-umbrella")).to_be_visible()
    dialog.get_by_label("Why is it not true?").fill("the sensor was broken")
    send(window, "Refute")
    expect(window.locator(".now-table .status")).to_have_text("pending review")
    assert got(page, ground.id).reason_code == "refuted"


def test_a_read_token_is_offered_no_actions(open_console: Opened, served: Served, bus: Bus, tmp_path: Path) -> None:
    """With a token that may only read, buttons are hidden and keys open no form."""
    tokens = tmp_path / "tokens.yaml"
    secret = McpTokens(tokens).add("looks", McpIdentity.of("looks"), scopes=["read"])
    id = bus.page("act:may").add("risk_alert", "only looked at").id
    with serve(served.url, tokens=tokens) as strict:
        console = open_console(strict, sees_failures=True)
        window = console.window
        sign_in(window, secret)
        expect(window.locator(".connection.live")).to_be_visible()  # leaving earlier would abort the request
        window = console.open(f"#/now?page=act:may&selected={id}")
        expect(window.locator(".detail").get_by_text("only looked at")).to_be_visible()
        for name in ("Add", "Resolve", "Refute"):
            expect(window.get_by_role("button", name=name, exact=True)).to_be_hidden()
        for key in "aerx":
            window.keyboard.press(key)
        expect(window.get_by_role("dialog")).to_be_hidden()


def test_a_refused_addition_names_the_wrong_field(console: Console, bus: Bus) -> None:
    """A refused addition keeps the typed values, and shows the error at its field."""
    console.sees_failures = True
    window = console.open("#/now?page=act:wrong")
    window.keyboard.press("a")
    window.get_by_label("Content").fill("kept")
    window.get_by_label("Lives for").fill("soon")
    send(window, "Add")
    expect(window.get_by_text(re.compile("'soon' is not"))).to_be_visible()
    expect(window.get_by_label("Content")).to_have_value("kept")
    window.get_by_label("Lives for").fill("2h")
    send(window, "Add")
    expect(window.get_by_role("row", name=re.compile("kept"))).to_be_visible()
    assert len(bus.page("act:wrong").list()) == 1


def test_two_windows_and_a_daemon_converge(console: Console, bus: Bus) -> None:
    """While two windows and a daemon write at once, both windows end up with the state of the bus."""
    page = bus.page("act:busy")
    ids = [page.add("observation", f"item {number}").id for number in range(12)]
    first = console.open("#/now?page=act:busy&q=status:all")
    second = first.context.new_page()
    second.goto(first.url)
    console.expect_rows(*(f"item {number}" for number in reversed(range(12))))
    for number, window in enumerate((first, second) * 3):
        page.update(ids[number + 6], confidence=0.5)
        page.add("observation", f"more {number}")
        window.bring_to_front()
        window.get_by_role("row", name=re.compile(f"item {number} ")).click()
        act(window, "Resolve")
        expect(window.get_by_role("dialog")).to_be_hidden()
        page.archive(ids[number + 6])
        window.keyboard.press("Escape")
    was = {each.content: each.status for each in page.list(limit=None)}
    shown = """() => Object.fromEntries([...document.querySelectorAll('.table-body .table-row')].map(row =>
        [row.querySelector('.excerpt').textContent, row.querySelector('.status')?.textContent ?? 'active']))"""
    for window in (first, second):
        expect(window.locator(".toolbar-count")).to_have_text("18 observations")
        window.wait_for_function(f"() => ({shown})()['item 11'] === 'archived'")
        assert window.evaluate(shown) == was
