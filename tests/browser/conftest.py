"""Fixtures for the console in Chromium, on its own server and engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    ViewportSize,
    expect,
    sync_playwright,
)

from scratchbus import Bus, stop_engine
from tests.browser.serving import Served, serve
from tests.waiting import PATIENCE, eventually

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


expect.set_options(timeout=PATIENCE * 1_000)


@pytest.fixture(scope="module")  # while it is open, no other event loop can run in this thread
def chromium() -> Iterator[Browser]:
    """A browser shared by the tests of a module."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server shared by tests that do not disturb it; each uses its own page of the bus."""
    directory = tmp_path_factory.mktemp("served")
    with serve(f"embedded://{directory}") as running:
        yield running
    stop_engine(directory)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Served]:
    """A server and a bus of this test only."""
    with serve(f"embedded://{tmp_path}") as running:
        yield running
    stop_engine(tmp_path)


@pytest.fixture
def bus(served: Served) -> Iterator[Bus]:
    """Another client of the bus, like a daemon."""
    with Bus.connect(served.url, source="daemon") as opened:
        yield opened


@dataclass
class Console:
    """The console in a window, and the errors and foreign requests seen in it."""

    window: Page
    served: Served
    sees_failures: bool = False
    wrong: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def open(self, address: str = "#/now") -> Page:
        """Open an address of the console, like a link from a colleague."""
        self.window.goto("about:blank")
        self.window.goto(f"{self.served.origin}/{address}")
        self.window.wait_for_selector(".connection.live")
        return self.window

    def expect_rows(self, *contents: str) -> None:
        """Wait until the rows have these contents, from top to bottom."""
        eventually(lambda: self.rows() == [*contents], f"the rows {contents}")

    def rows(self) -> list[str]:
        """Return the contents of the rows in the document, from top to bottom."""
        found: list[str] = self.window.evaluate(
            """() => [...document.querySelectorAll('.table-body .table-row')]
                .sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)
                .map(row => row.querySelector('.cell-content .excerpt, .cell-what')?.textContent ?? '')"""
        )
        return found

    def _listen(self) -> None:
        self.window.on("console", self._check_message)
        self.window.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.window.on("request", self._check_request)

    def _check_message(self, message: ConsoleMessage) -> None:
        if self.sees_failures and message.text.startswith("Failed to load resource"):
            return  # the browser logs every failed request
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _check_request(self, request: Request) -> None:
        if not request.url.startswith((self.served.origin, "data:", "about:")):
            self.elsewhere.append(request.url)


Opened = Callable[..., Console]


def sign_in(window: Page, secret: str, name: str = "Token") -> None:
    """Sign in with a token, or with a key."""
    window.get_by_label(name, exact=True).fill(secret)
    window.get_by_role("button", name="Sign in").click()


def address_of(window: Page) -> str:
    """Return the part of the address after `#`. The console writes it late after quick changes, but before a click."""
    address: str = window.evaluate("() => { dispatchEvent(new Event('click')); return location.hash; }")
    return address


def settle(window: Page) -> None:
    """Wait until the console has drawn what it knows: some frames with their effects, and all transitions."""
    window.evaluate(
        """async () => {
            for (let frame = 0; frame < 3; frame++) {
                await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
            }
            const ends = each => each.effect.getComputedTiming().endTime !== Infinity;
            await Promise.allSettled(document.getAnimations().filter(ends).map(each => each.finished));
        }"""
    )


@pytest.fixture
def open_console(chromium: Browser) -> Iterator[Callable[..., Console]]:
    """Return a function that opens a window; no window may log an error or send requests to another host."""
    contexts: list[BrowserContext] = []
    consoles: list[Console] = []

    def opened(
        served: Served, width: int = 1280, height: int = 800, scheme: str = "light", sees_failures: bool = False
    ) -> Console:
        size: ViewportSize = {"width": width, "height": height}
        context = chromium.new_context(viewport=size, color_scheme="dark" if scheme == "dark" else "light")
        context.set_default_timeout(PATIENCE * 1_000)
        contexts.append(context)
        console = Console(context.new_page(), served, sees_failures)
        console._listen()
        console.window.goto(served.to_open)
        consoles.append(console)
        return console

    yield opened
    for context in contexts:
        context.close()
    for console in consoles:
        assert console.wrong == []
        assert console.elsewhere == []


@pytest.fixture
def console(open_console: Opened, served: Served) -> Console:
    """A window on the shared server."""
    return open_console(served)


@pytest.fixture
def pictures() -> Path:
    """The directory of screenshots for people."""
    directory = Path(__file__).parents[2] / "build" / "console"
    directory.mkdir(parents=True, exist_ok=True)
    return directory
