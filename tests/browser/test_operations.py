"""The view Operations: subscriptions, dead letters, verification, types."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from scratchbus import Bus
from tests.browser.conftest import Console, Opened, settle
from tests.browser.serving import Served
from tests.browser.test_shell import violations


def make_dead_letters(bus: Bus, name: str, many: int) -> None:
    """Make a subscription fail on some events until they are dead letters, and handle one more."""
    start = bus.position()
    page = bus.page(f"operations:{name}")
    for number in range(many + 1):
        page.add("observation", f"letter {number}")
    with bus.subscribe(name, pages=[page.name], after=start, max_attempts=1, retry_delay="1ms") as deliveries:
        for number, delivery in enumerate(deliveries):
            if number == many:
                delivery.ack()
                break
            delivery.fail("the mail server is away")


@pytest.mark.slow
def test_dead_letters_are_retried_and_dropped(console: Console, bus: Bus) -> None:
    """One is retried, one is dropped, then all are dropped; the table follows."""
    make_dead_letters(bus, "mail", 3)
    window = console.open("#/operations")
    letters = window.locator(".letters", has_text="mail")
    expect(letters.locator("tbody tr")).to_have_count(3)
    expect(letters).to_contain_text("the mail server is away")
    letters.get_by_role("button", name=re.compile("^Retry [0-9]")).first.click()
    expect(letters.locator("tbody tr")).to_have_count(2)
    letters.get_by_role("button", name=re.compile("^Drop [0-9]")).first.click()
    expect(letters.locator("tbody tr")).to_have_count(1)
    assert len(bus.dead_letters("mail")) == 1
    letters.get_by_role("button", name="Drop all").click()
    window.get_by_role("dialog").get_by_role("button", name="Drop", exact=True).click()
    expect(letters).to_have_count(0)
    assert bus.dead_letters("mail") == []


@pytest.mark.browser
def test_type_errors_name_their_line_and_valid_types_publish(own_server: Served, open_console: Opened) -> None:
    """Daemons and the console know a published type at once."""
    with Bus.connect(own_server.url, source="daemon") as bus:
        window = open_console(own_server).open("#/operations")
        window.get_by_role("button", name="Edit the types").click()
        editor = window.get_by_label("The types as YAML")
        text = (
            editor.input_value().rstrip() + "\n\n  price_alert:\n    description: A price moved\n    priority: high\n"
        )
        editor.fill(text)
        line = len(text.splitlines())
        expect(window.locator(".editor-said")).to_contain_text(f"line {line}")
        expect(window.locator(".editor-said")).to_contain_text("types.price_alert.priority")
        expect(window.locator(".gutter .wrong")).to_have_text(f"✖ {line}")
        expect(window.get_by_role("button", name="Publish")).to_be_disabled()
        editor.fill(text.replace("priority: high", "priority: 66"))
        expect(window.locator(".editor-said")).to_contain_text("Valid: new price_alert")
        window.get_by_role("button", name="Publish").click()
        expect(window.get_by_role("region", name="Observation types")).to_contain_text("price_alert")
        assert bus.page("main").add("price_alert", "up").priority == 66


@pytest.mark.browser
def test_types_that_someone_else_has_published_meanwhile_are_kept(
    own_server: Served, open_console: Opened, tmp_path: Path
) -> None:
    """An editor that is open publishes only over the version that it shows."""
    file = tmp_path / "types.yaml"
    window = open_console(own_server, sees_failures=True).open("#/operations")
    window.get_by_role("button", name="Edit the types").click()
    editor = window.get_by_label("The types as YAML")
    text = editor.input_value().rstrip()
    editor.fill(f"{text}\n\n  my_alert:\n    description: A price moved\n    priority: 66\n")
    expect(window.locator(".editor-said")).to_contain_text("Valid: new my_alert")
    with Bus.connect(own_server.url, source="daemon") as bus:
        file.write_text(f"{text}\n\n  their_alert:\n    description: A door opened\n    priority: 50\n")
        bus.push_types(file)
        expect(window.get_by_role("heading", name=re.compile("9 types"))).to_be_visible()
        window.get_by_role("button", name="Publish").click()
        expect(window.locator(".editor-said")).to_contain_text("Someone else published since you opened it")
        assert "their_alert" in bus.types.types
        assert "my_alert" not in bus.types.types


@pytest.mark.browser
def test_verify_reports_the_compared_events(own_server: Served, open_console: Opened) -> None:
    """The result names the number of compared events."""
    with Bus.connect(own_server.url, source="daemon") as bus:
        for number in range(30):
            bus.page("main").add("observation", f"number {number}")
    window = open_console(own_server).open("#/operations")
    window.get_by_role("button", name="Verify").click()
    expect(window.get_by_text("All is as it should be.")).to_be_visible()
    expect(window.locator(".panel", has_text="All is as it should be.")).to_contain_text("30 events, ")


@pytest.mark.browser
def test_a_subscription_is_deleted(console: Console, bus: Bus) -> None:
    """A dialog asks for confirmation, and mentions its dead letters."""
    make_dead_letters(bus, "to-be-deleted", 1)
    window = console.open("#/operations")
    window.get_by_role("button", name="Delete the subscription to-be-deleted").click()
    expect(window.get_by_role("dialog")).to_contain_text("so is its dead letter")
    window.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(window.locator(".panel", has_text="to-be-deleted")).to_have_count(0)
    assert "to-be-deleted" not in [each.name for each in bus.subscriptions()]


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_operations_pass_axe(open_console: Opened, served: Served, bus: Bus, scheme: str, width: int) -> None:
    """Checks dead letters and the open editor; at 360 px only tables and code scroll sideways."""
    make_dead_letters(bus, f"axe-{scheme}-{width}", 1)
    window = open_console(served, scheme=scheme, width=width).open("#/operations")
    expect(window.locator(".letters").first).to_be_visible()
    window.get_by_role("button", name="Edit the types").click()
    expect(window.get_by_label("The types as YAML")).to_be_visible()
    assert violations(window) == []
    assert window.evaluate("() => document.querySelector('.operations').scrollWidth <= innerWidth")


@pytest.mark.browser
def test_a_lease_is_measured_from_now_while_the_past_is_shown(console: Console, bus: Bus) -> None:
    """Operations shows the present, whatever moment the time bar shows."""
    page = bus.page("operations:lease")
    start = bus.position()
    page.add("observation", "to be handled")
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat().replace("+00:00", "Z")
    with bus.subscribe("leased", pages=[page.name], after=start) as deliveries:
        next(iter(deliveries))
        window = console.open(f"#/operations?at={yesterday}")
        lease = window.get_by_role("region", name="Subscriptions").get_by_role("row", name=re.compile("leased"))
        expect(lease.locator("time").first).to_have_text(re.compile(r"^\d+s$"))
        expect(lease.locator("time").first).not_to_have_class(re.compile("soon"))  # a live consumer renews it in time


@pytest.mark.browser
def test_operations_are_not_loaded_again_for_each_moment(console: Console, bus: Bus) -> None:
    """They are the same at every moment; the archive is checked whole each time it is asked for."""
    for number in range(4):
        bus.page("operations:steps").add("observation", f"event {number}")
    window = console.open("#/operations")
    expect(window.get_by_role("heading", name="Archive")).to_be_visible()
    window.wait_for_selector(".slider")
    asked: list[str] = []
    window.on("request", lambda request: asked.append(request.url))
    for _ in range(3):
        window.keyboard.press("ArrowLeft")
    expect(window.locator("main.past")).to_be_visible()
    expect(window.get_by_role("slider")).to_have_attribute("aria-busy", "false")
    settle(window)
    assert not [url for url in asked if url.endswith(("/archive", "/dead-letters", "/types"))]


@pytest.mark.browser
def test_the_editor_of_types_takes_the_focus_and_gives_it_back(console: Console) -> None:
    """By keyboard, the button that opens it is not lost with its focus."""
    window = console.open("#/operations")
    button = window.get_by_role("button", name="Edit the types")
    button.press("Enter")
    expect(window.get_by_label("The types as YAML")).to_be_focused()
    window.get_by_role("button", name="Close").press("Enter")
    expect(button).to_be_focused()


@pytest.mark.browser
def test_rows_of_operations_are_named_by_their_header(console: Console, bus: Bus) -> None:
    """A screen reader says the name of the row with each of its cells."""
    with bus.subscribe("operations-named"):
        pass
    window = console.open("#/operations")
    for name in ("operations-named", "risk_alert", "0"):
        expect(window.get_by_role("rowheader", name=name, exact=True)).to_be_visible()
