"""A crew that triages a failed CI run: a reporter, two triagers and a release that waits for all of them.

python crew.py junit.xml

The reporter publishes each failed test of a JUnit report, and a release that is blocked by all of them. Triagers
compete for the failures, each is claimed by one of them, and say whether the test is flaky or broken. When the last
failure is closed, the release becomes ready by itself.
"""

from __future__ import annotations

import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from hashlib import sha256

from scratchbus import Bus, Job, Observation, Page

Model = Callable[[str], str]
"""Answers a prompt; put your own here."""

MAX_CONTENT = 4_000
"""Characters of a failure that are shown: a message may have megabytes."""


def scripted_model(prompt: str) -> str:
    """Stand in for a language model: time-outs are flaky, all else is broken."""
    return "flaky" if "timeout" in prompt.lower() else "broken"


def report(bus: Bus, path: str) -> list[Observation]:
    """Publish the tests of a JUnit report that failed or could not run, and the release that they block."""
    page = bus.page("ci")
    failures = []
    for case in ElementTree.parse(path).iter("testcase"):
        for problem in case.findall("failure") or case.findall("error"):
            name = f"{case.get('classname')}::{case.get('name')}"
            content = f"{name}: {problem.get('message')}"[:MAX_CONTENT]
            key = sha256(name.encode()).hexdigest()  # the name of a test with parameters may be too long for a key
            failures.append(page.add("risk_alert", content, dedupe_key=key, metadata={"test": name}))
    page.add("action_suggestion", "Release", tags=["release"], blocked_by=[each.id for each in failures])
    return failures


def triage(page: Page, job: Job, model: Model) -> None:
    """Say whether a test is flaky or broken; what is broken is published for who can fix it."""
    failure = job.observation
    verdict = model(f"Is this test flaky or broken? {failure.content}")
    if verdict == "broken":
        fix = page.add("action_suggestion", f"Fix {failure.metadata['test']}", evidence=[failure.id])
        job.link(f"fix-{fix.id}")
    job.resolve(reason=verdict)


def work(name: str, model: Model, done: threading.Event) -> None:
    """Triage what there is, as one of several workers."""
    with Bus.connect(source=name) as bus, bus.work("triage", pages="ci", types="risk_alert", stop=done) as jobs:
        for job in jobs:
            with job:
                triage(bus.page("ci"), job, model)
                print(f"{name}: {job.observation.content} -> {job.observation.reason}", flush=True)


def release(bus: Bus) -> None:
    """Wait until nothing blocks the release, then make it."""
    with bus.work("release", pages="ci", tags="release") as jobs:
        job = next(iter(jobs))
        job.resolve(reason="all failures are triaged")
        print(f"{job.observation.content}: {job.observation.reason}")


def main() -> None:
    """Run the crew on one report."""
    if len(sys.argv) != 2:
        sys.exit("usage: crew.py JUNIT_XML; the README says how to make a report")
    done = threading.Event()
    with Bus.connect(source="reporter") as bus:
        failures = report(bus, sys.argv[1])
        print(f"{len(failures)} failures; ready: {[each.content for each in bus.page('ci').ready()]}", flush=True)
        names = ("triager-1", "triager-2")
        crew = [threading.Thread(target=work, args=(name, scripted_model, done)) for name in names]
        for each in crew:
            each.start()
        try:
            release(bus)
        finally:
            done.set()
            for each in crew:
                each.join()


if __name__ == "__main__":
    main()
