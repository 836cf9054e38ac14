"""The demo: runs the daemons on a log, and shows what happens on the page."""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from scratchbus import Bus, Observation, Page, stop_engine, urgency, visible
from scratchbus.daemon import INTERNAL, INTERRUPTED, OK, exit_code
from scratchbus.errors import InvalidURL, ScratchbusError

from .demo_console import PAUSE, Serve, console, portions
from .demo_crew import Crew, DemoFailed, interruptible, without_settings
from .demo_outcome import Outcome, alerts_of, outcome_of
from .demo_report import Report
from .demo_sample import sample_log
from .log_file import LogFile
from .router import SUGGESTION, THRESHOLD

_NOTE = "observation"
_NOTE_TTL = "4s"
_QUIET_FOR = "2s"
_READING_SECONDS = 600.0
_MAX_OBSERVATIONS = "100000"  # enough for every address of a big log


def run_demo(
    log: str | Path | None = None,
    url: str | None = None,
    *,
    as_json: bool = False,
    serve: Serve | None = None,
    pause: float = PAUSE,
) -> int:
    """Run the daemons on a log, or on a sample, and show what happens; return the exit code.

    Without a URL, the engine lives in a temporary directory that is deleted afterwards. With one, the demo uses a new
    page there, which stays. With `as_json`, prints only the numbers, as one JSON document. With `serve`, there is a
    console on it, the steps are `pause` seconds apart, and it stays until Ctrl-C. All processes are stopped in any
    case. If the demo fails, it keeps their logs and prints where they are.
    """
    directory = Path(tempfile.mkdtemp(prefix="scratchbus-demo-"))
    complain = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    is_kept = False
    try:
        report = Report(_Output(quiet=as_json, highlight=False))
        with interruptible() as interrupted:
            log_path = Path(log) if log is not None else None
            outcome = _Demo(directory, log_path, url, report, serve, pause).run(interrupted)
        if as_json:
            print(json.dumps(asdict(outcome)))  # noqa: T201  # the output that was requested
        return OK
    except KeyboardInterrupt:
        complain.print("demo: interrupted; everything is stopped")
        return INTERRUPTED
    except DemoFailed as problem:
        is_kept = True
        complain.print(visible(f"demo: {problem}; see the daemons' logs in {directory / 'logs'}"))
        return INTERNAL
    except ScratchbusError as problem:
        complain.print(visible(f"demo: {problem}"))
        return exit_code(problem)
    finally:
        if not is_kept:
            shutil.rmtree(directory, ignore_errors=True)


class _Output(Console):
    """Standard output. Its reader may leave early, as `head` does; then the demo is cleaned up, as after an error."""

    def on_broken_pipe(self) -> None:
        """Fail as Python does, instead of ending the process with 1, and print nothing more."""
        self.quiet = True
        raise BrokenPipeError


class _Demo:
    """One run: the chapters in their order, and the state they share."""

    def __init__(
        self, directory: Path, log: Path | None, url: str | None, report: Report, serve: Serve | None, pause: float
    ) -> None:
        self._directory = directory
        self._serve = serve
        self._pause = pause if serve else 0.0
        self._given_log = log
        self._given_url = url
        self._report = report
        self._name = "main" if url is None else f"demo:{secrets.token_hex(4)}"
        self._blocklist = directory / "blocklist.txt"
        self._url = f"embedded:{directory / 'engine'}" if url is None else url

    def run(self, interrupted: threading.Event) -> Outcome:
        """Run all chapters and return the numbers. Stops every process it started, also after an error."""
        started = time.monotonic()
        if self._url.startswith("memory:"):
            raise InvalidURL("the demo has several processes, which cannot share memory://; leave --url out")
        log = self._log()
        logs = self._directory / "logs"
        logs.mkdir()
        with ExitStack() as cleanup:
            if self._given_url is None:
                cleanup.enter_context(without_settings())
                cleanup.callback(stop_engine, self._directory / "engine")
            bus = cleanup.enter_context(Bus.connect(self._url, source="demo"))
            page = bus.page(self._name)
            variables = {"SCRATCHBUS_URL": self._url, "SCRATCHBUS_MAX_OBSERVATIONS": _MAX_OBSERVATIONS}
            crew = cleanup.enter_context(Crew(logs, variables, interrupted))
            self._report.opening(str(self._given_log or "a made-up log of an SSH server"))
            if self._serve is not None:
                settings = {"url": self._url, "max_observations": int(_MAX_OBSERVATIONS)}
                self._report.line(f"Console: {cleanup.enter_context(console(self._serve, settings))}")
            self._start(crew)
            note = self._read(crew, page, log)
            self._act(crew, page)
            self._show_page(page)
            self._show_actions(page)
            crew.pause(self._pause)
            self._resolve(crew, page)
            self._expire(crew, page, note)
            self._show_life(page)
            outcome = outcome_of(bus, page, self._blocked(), started)
            if self._serve is not None:
                self._report.line("The demo is over; look around in the console. Ctrl-C ends it.")
                crew.wait_for_end()
            self._stop(crew)
        self._close(outcome)
        return outcome

    def _log(self) -> Path:
        """Return the path of the log to read. Raises FileGone when it does not exist, InvalidInput for no log."""
        if self._given_log is None:
            sample = self._directory / "sample.log"
            sample.write_text(sample_log(), encoding="utf-8")
            return sample
        LogFile(self._given_log).close()
        return self._given_log.absolute()

    def _start(self, crew: Crew) -> None:
        self._report.chapter("The daemons start", "Each is a process of its own; all they share is the bus.")
        tools = ("--blocklist", str(self._blocklist))
        pids = {
            "projector": crew.start("projector", "projector"),
            "expirer": crew.start("expirer", "expirer"),
            "router": crew.start("router", "router", "--page", self._name),
            "executor-1": crew.start("executor-1", "executor", "--page", self._name, *tools),
            "executor-2": crew.start("executor-2", "executor", "--page", self._name, *tools),
        }
        self._report.processes(pids)

    def _read(self, crew: Crew, page: Page, log: Path) -> Observation:
        self._report.chapter(
            "The log watcher reads the log",
            "One alert per address; while it is open, another failed password raises its count.",
        )
        note = page.add(_NOTE, f"This note lives for {_NOTE_TTL}: watch it expire", ttl=_NOTE_TTL)
        started = time.monotonic()
        state = ("--state", str(self._directory / "logwatch.json"))
        if self._serve is None:
            self._watch(crew, log, state)
        else:
            copy = self._directory / "watched.log"
            for _ in portions(log, copy, crew, self._pause):
                self._watch(crew, copy, state)
        alerts = alerts_of(page)
        attempts = sum(alert.occurrences for alert in alerts)
        seconds = time.monotonic() - started
        self._report.line(f"[b]{len(alerts)}[/b] addresses, [b]{attempts}[/b] attempts, in {seconds:.1f} s")
        return note

    def _watch(self, crew: Crew, log: Path, state: tuple[str, ...]) -> None:
        """Read a log to its end."""
        is_first = not crew.knows("logwatch")
        pid = crew.start("logwatch", "logwatch", "--page", self._name, "--log", str(log), *state)
        if is_first:
            self._report.processes({"logwatch": pid})
        with self._report.console.status("reading …"):
            crew.wait_until("the log is read", lambda: crew.is_done("logwatch"), _READING_SECONDS)

    def _act(self, crew: Crew, page: Page) -> None:
        """Wait until every urgent alert is answered."""

        def is_answered() -> bool:
            suggestions = page.list(type=SUGGESTION, limit=None)
            acted_on = {id for each in suggestions if each.status != "active" for id in each.evidence}
            now = datetime.now(UTC)
            urgent = (
                alert for alert in alerts_of(page) if alert.is_open and urgency(alert, now) >= THRESHOLD
            )  # fmt: skip
            return all(alert.id in acted_on for alert in urgent)

        with self._report.console.status("acting …"):
            crew.wait_until("every urgent alert is acted on", is_answered)

    def _show_page(self, page: Page) -> None:
        self._report.chapter(
            "The page, by priority",
            "The view of any tool, daemon or agent that asks what is going on: one call, always up to date.",
        )
        self._report.page(page.active())

    def _show_actions(self, page: Page) -> None:
        self._report.chapter(
            "Suggested, claimed, acted on",
            "The router suggests what is urgent. One executor claims it, acts, and links the action to the alert.",
        )
        rows = []
        for suggestion in sorted(page.list(type=SUGGESTION, limit=None), key=_urgency_of, reverse=True):
            alert = page.get(suggestion.evidence[0])
            events = page.history(suggestion.id)
            holders = dict.fromkeys(event.model_dump()["holder"] for event in events if event.kind == "claimed")
            rows.append((suggestion, ", ".join(holders), ", ".join(alert.links) if alert else ""))
        self._report.actions(rows)
        self._report.line(f"The blocklist now has {len(self._blocked())} addresses, each of them once.")

    def _resolve(self, crew: Crew, page: Page) -> None:
        self._report.chapter(
            "What was acted on is resolved",
            f"The evaluator starts now that the log is read, and waits until an address was quiet for {_QUIET_FOR}.",
        )
        pid = crew.start("evaluator", "evaluator", "--page", self._name, "--quiet-for", _QUIET_FOR)
        self._report.processes({"evaluator": pid})
        with self._report.console.status("waiting for quiet …"):
            crew.wait_until(
                "what was acted on is resolved",
                lambda: not any(alert.is_open and alert.links for alert in alerts_of(page)),
            )
        alerts = alerts_of(page)
        still_open = sum(alert.is_open for alert in alerts)
        self._report.line(
            f"[green]{len(alerts) - still_open} resolved[/green]; {still_open} stay on the page: they tried too seldom"
            " to act on, and are watched until they expire."
        )

    def _expire(self, crew: Crew, page: Page, note: Observation) -> None:
        self._report.chapter(
            "What nobody needs any more expires",
            "Expiry is an event too: appended once, and replayed like any other.",
        )
        crew.wait_until("the note expires", lambda: len(page.history(note.id)) > 1)
        self._report.history(page.history(note.id))

    def _show_life(self, page: Page) -> None:
        alerts = alerts_of(page)
        if not alerts:
            return
        worst = max(alerts, key=lambda alert: alert.occurrences)
        self._report.chapter(
            f"The life of one observation: {worst.content}",
            "Nothing is overwritten. The page is folded from these events, which stay when it is long gone.",
        )
        self._report.history(page.history(worst.id))
        for action in worst.links:
            self._report.trace(page.trace(action))

    def _stop(self, crew: Crew) -> None:
        crew.wait_until("all daemons have started", crew.have_started)
        codes = crew.stop()
        crew.pause(0)  # an interrupt at this moment is no failure
        if failed := {name: code for name, code in codes.items() if code}:
            raise DemoFailed(f"these did not stop cleanly, by exit code: {failed}")

    def _close(self, outcome: Outcome) -> None:
        self._report.totals(
            [
                ("attacking addresses, one observation each", outcome.addresses),
                ("failed passwords", outcome.attempts),
                ("suggested · acted on · resolved", f"{outcome.suggested} · {outcome.acted_on} · {outcome.resolved}"),
                ("still watched", outcome.still_open),
                ("expired", outcome.expired),
                ("events in the log, every one of them kept", outcome.events),
                ("seconds", outcome.seconds),
            ],
            "All daemons ended with exit code 0"
            + (
                f"; the page is {self._name!r} there."
                if self._given_url is not None
                else "; the engine is stopped and its data gone."
            ),
        )

    def _blocked(self) -> list[str]:
        return self._blocklist.read_text().split() if self._blocklist.exists() else []


def _urgency_of(suggestion: Observation) -> float:
    return float(suggestion.metadata.get("urgency", 0))
