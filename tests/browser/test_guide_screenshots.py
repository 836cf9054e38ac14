"""The screenshots of the guide to the console; PICTURES=docs writes them into docs/images."""

from __future__ import annotations

import base64
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from playwright.sync_api import Page as Window
from playwright.sync_api import expect

from scratchbus import Bus, stop_engine
from tests.browser.conftest import Opened
from tests.browser.serving import Served, serve
from tests.waiting import eventually

DOCS = Path(__file__).parents[2] / "docs" / "images"
MAX_BYTES = 150_000
"""The maximum size of a screenshot, so that the repository stays small."""


@pytest.fixture
def story_server() -> Iterator[Served]:
    """A server in a directory with a short name, since a screenshot shows it."""
    with TemporaryDirectory(prefix="scratchbus-") as directory:
        with serve(f"embedded://{directory}") as running:
            yield running
        stop_engine(Path(directory))


def write_story(url: str) -> dict[str, str]:
    """Write the story of a stolen card; return the ids of the alert and of a fact, and an earlier position."""
    with ExitStack() as stack:
        as_source: Callable[[str], Bus] = lambda name: stack.enter_context(Bus.connect(url, source=name))  # noqa: E731
        fraud, mail, router, ops = map(as_source, ("fraud_detector", "mail_verifier", "router", "ops"))
        logs, alice = as_source("log_watcher"), as_source("alice")
        berlin = fraud.page().add("observation", "Card 4242 was used in Berlin at 14:01", tags=["card:4242"])
        lagos = fraud.page().add("observation", "Card 4242 was used in Lagos at 14:09", tags=["card:4242"])
        pattern = fraud.page().add(
            "pattern_detected", "Card 4242 was in two countries within ten minutes", evidence=[berlin.id, lagos.id]
        )
        moved = mail.page().add("contextual_insight", "User 42 changed their e-mail address; the new one bounces")
        alert = router.page().add(
            "risk_alert",
            "Card 4242 looks stolen: two countries, and a fresh e-mail address that bounces",
            evidence=[pattern.id, moved.id],
            tags=["card:4242", "urgent"],
            confidence=0.8,
            ttl="2h",
        )
        advice = router.page().add("action_suggestion", "Freeze card 4242 and call user 42", evidence=[alert.id])
        mail.page().add(
            "pending_confirmation", "Confirm the new address of user 42", evidence=[moved.id], owner="support"
        )
        slow = logs.page().add(
            "observation", "Checkout answers in 900 ms; it was 120 ms an hour ago", tags=["checkout"]
        )
        logs.page().add(
            "pattern_detected", "Checkout gets slower with every deploy", evidence=[slow.id], tags=["deploy"]
        )
        logs.page().add("dependency", "The nightly backup needs 43 minutes and may collide with the deploy")
        notes = alice.notes("case-42")
        notes.add("User 42 travels to Lagos every spring; a trip is not odd by itself", ["user:42"])
        notes.add("The bank's hotline is open until 20:00", ["bank"])
        alice.notepad("case-42").write("# Case 42\n\n- [ ] ask the bank\n- [ ] call the user\n")
        alice.todo("case-42").write([{"id": "1", "content": "Call user 42", "status": "in_progress"}])
        alice.context.assemble(session="case-42", agent="alice", record=True)
        alice.spawn_session("case-42", session="case-42/bank")
        claim = ops.page().claim(alert.id, ttl="30m")
        ops.page().update(alert.id, confidence=0.9, metadata={"checked_by": "ops"}, fence=claim.fence)
        alice.page().link(alert.id, "ticket-1187")
        alice.page().link(advice.id, "call:user-42")
        ops.page().release(alert.id)
        alice.notepad("case-42").update(
            "find_replace", find="[ ] ask the bank", replace="[x] ask the bank: a wrong clock"
        )
        fraud.page().refute(lagos.id, reason="the terminal in Lagos had a wrong clock")
        notes.add("Ask for the terminal's clock before believing a time", ["method"])
        bus = as_source("mailer")
        with bus.subscribe(
            "mailer", types=["risk_alert"], after="0-0", max_attempts=1, retry_delay="1ms"
        ) as deliveries:
            for number, delivery in enumerate(deliveries):
                if number:
                    delivery.ack()
                    break
                delivery.fail("the mail server is away")
        mail.page().claim(mail.page().list(type="pending_confirmation")[0].id, ttl="20m")
        bank = alice.facts("bank")
        old = bank.assert_fact(
            "user 42", "lives_in", "Berlin", valid_at="2021-04-01", source_text="I moved to Berlin in April 2021"
        )
        mail.facts("bank").assert_fact("user 42", "lives_in", "Lisbon", valid_at="2026-09-01", evidence=[moved.id])
        bank.ingest("card 4242 -> owner -> user 42\nuser 42 -> uses -> card 4242\ncard 4242 -> part_of -> account 17")
        bank.ingest("account 17 -> located_in -> branch Mitte\nuser 43 -> uses -> account 17")
        for source, status in ((fraud, "blocked"), (ops, "active")):
            source.facts("bank").assert_fact("card 4242", "status", status, valid_at="2026-11-20")
        alice.preferences("bank").remember("calls", "never call a customer before 9:00", said_by="ops")
        return {"id": alert.id, "fact": old.id, "at": str(router.page().history(alert.id)[2].position)}


VIEWS = [
    ("now", "#/now?selected={id}", ".table-body .table-row"),
    ("past", "#/now?selected={id}&at={at}", "main.past .detail-content"),
    ("story", "#/story?selected={id}", ".graph-node"),
    ("what-if", "#/what-if?without=fraud_detector&all=yes", ".sides-row.is-gone"),
    ("memory", "#/memory?session=case-42&tab=context&budget=700", ".context-lines"),
    ("facts", "#/memory?scope=bank&fact={fact}", ".graph-entity"),
    ("log", "#/log", ".table-body .table-row"),
    ("operations", "#/operations", ".letters"),
]


@pytest.mark.browser
def test_the_guide_has_a_screenshot_of_each_view(story_server: Served, open_console: Opened, tmp_path: Path) -> None:
    """The story view also has one in dark colours."""
    into = DOCS if os.environ.get("PICTURES") == "docs" else tmp_path / "pictures"
    into.mkdir(parents=True, exist_ok=True)
    ids = write_story(story_server.url)
    for scheme, views in (("light", VIEWS), ("dark", VIEWS[2:3])):
        console = open_console(story_server, width=1180, height=680, scheme=scheme)
        for name, address, sign in views:
            window = console.open(address.format(**ids))
            expect(window.locator(sign).first).to_be_visible()
            take_screenshot(window, into / f"console-{name}{'-dark' if scheme == 'dark' else ''}.png")


def take_screenshot(window: Window, path: Path) -> None:
    """Take a screenshot once the histogram is drawn and the window is at rest."""
    window.wait_for_selector(".time-bars canvas")
    eventually(lambda: window.screenshot() == window.screenshot(), "a window at rest")
    path.write_bytes(compress(window, window.screenshot(animations="disabled")))
    assert 5_000 < path.stat().st_size < MAX_BYTES, path


_ROWS = """async png => {
    const bytes = Uint8Array.from(atob(png), each => each.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes]));
    const { width, height } = image;
    const canvas = new OffscreenCanvas(width, height).getContext("2d");
    canvas.drawImage(image, 0, 0);
    const { data } = canvas.getImageData(0, 0, width, height);
    const rows = new Uint8Array(height * (1 + 3 * width));
    for (let y = 0, to = 0; y < height; y++) {
        rows[to++] = 0; // the filter
        for (let at = 4 * width * y; at < 4 * width * (y + 1); at += 4) {
            rows[to++] = data[at];
            rows[to++] = data[at + 1];
            rows[to++] = data[at + 2];
        }
    }
    const reader = new FileReader();
    return new Promise(done => {
        reader.onload = () => done({ width, height, rows: reader.result.split(",")[1] });
        reader.readAsDataURL(new Blob([rows]));
    });
}"""


def compress(window: Window, png: bytes) -> bytes:
    """Encode an opaque screenshot without filters, which enlarge pictures of text, and with the best compression."""
    image = window.evaluate(_ROWS, base64.b64encode(png).decode())
    header = struct.pack(">IIBBBBB", image["width"], image["height"], 8, 2, 0, 0, 0)  # 8 bits each of red, green, blue
    pixels = zlib.compress(base64.b64decode(image["rows"]), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
