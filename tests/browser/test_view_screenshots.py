"""Screenshots for people to look at: `build/console/*.png`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from playwright.sync_api import expect

from scratchbus import Bus
from tests.browser.conftest import Opened
from tests.browser.serving import Served

pytestmark = pytest.mark.browser

SIZES = ((360, 740), (1024, 720), (1600, 900))

SEEN = (
    ("risk_alert", "fraud-detector", "Card 4242 was used in Lisbon and Oslo within ten minutes", "card eu"),
    ("risk_alert", "fraud-detector", "Three accounts share one device and one new address", "device"),
    ("pending_confirmation", "mail-verifier", "The user has to confirm ana@exmaple.com, which bounced twice", "mail"),
    ("dependency", "deployer", "Release 7f3c waits for the database migration", "release"),
    ("reminder", "agent:alice", "Ask finance about invoice 2026-118 again on Monday", "invoice"),
    ("action_suggestion", "router", "Block card 4242 until its owner answers", "card"),
    ("action_suggestion", "agent:alice", "Offer the customer a refund of 43 EUR", "refund"),
    ("pattern_detected", "log-watcher", "Checkout is slower whenever the nightly backup runs", "checkout nightly"),
    ("pattern_detected", "fraud-detector", "Refunds after 22:00 come from the same two tills", "refund"),
    ("contextual_insight", "agent:bob", "User 42 prefers answers in Portuguese", "user:42"),
    ("observation", "log-watcher", "The backup took 43 minutes; usually it takes 12", "nightly"),
    ("observation", "log-watcher", "Latency of checkout rose to 900 ms", "checkout"),
    ("observation", "crm", "User 42 opened the app on a new device", "user:42 device"),
)


def play(bus: Bus, name: str) -> str:
    """Fill a page like daemons and agents do; return the id of the most interesting observation."""
    page = bus.page(name)
    choose = random.Random(5)
    ids: list[str] = []
    for type, source, content, tags in reversed(SEEN):
        evidence = choose.sample(ids, min(len(ids), choose.choice((0, 1, 2))))
        ttl = choose.choice(("20m", "2h", "1d", "7d"))
        added = page.add(type, content, source=source, tags=tags.split(), evidence=evidence, ttl=ttl, confidence=0.8)
        ids.append(added.id)
    card, devices, confirm = reversed(ids[-3:])
    page.claim(card, ttl="10m")
    page.link(card, "block-card-4242")
    page.review(devices, reason="two of them are siblings")
    page.update(confirm, owner="support")
    page.resolve(ids[3], reason="done this morning")
    return card


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_photographed_at_three_widths(
    open_console: Opened, served: Served, bus: Bus, pictures: Path, scheme: str
) -> None:
    """The page, a selected observation, the log and the past."""
    name = {"light": "user:42", "dark": "user:43"}[scheme]
    id = play(bus, name)
    for width, height in SIZES:
        console = open_console(served, width, height, scheme)
        for view, address in (
            ("now", f"#/now?page={name}"),
            ("selected", f"#/now?page={name}&selected={id}"),
            ("log", f"#/log?q=page:{name}"),
        ):
            window = console.open(address)
            window.wait_for_selector(".table-body .table-row")
            window.wait_for_selector(".time-bars canvas")
            window.screenshot(path=pictures / f"{view}-{width}-{scheme}.png")
        window = console.open(f"#/now?page={name}")
        window.wait_for_selector(".time-bars canvas")
        for _ in range(6):
            before = window.evaluate("location.hash")
            window.keyboard.press("ArrowLeft")
            window.wait_for_function("before => location.hash !== before", arg=before)
        expect(window.locator("main.past")).to_be_visible()
        window.wait_for_function("() => document.querySelector('.toolbar-count').textContent.startsWith('1')")
        window.screenshot(path=pictures / f"past-{width}-{scheme}.png")
