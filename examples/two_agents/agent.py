"""A coding agent that shares a repository with others: it claims a task, and each file before it edits that.

python agent.py NAME REPOSITORY

Start as many as you like. Tasks are observations of the page `repo` with the paths of their files in the context; one
may be blocked by others. An agent ends when nothing is left.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from scratchbus import Bus, Observation, Page
from scratchbus.errors import Conflict

HELD_FOR = "10m"
"""How long a claim lasts. Nothing renews it, so it must be longer than the model takes for a task."""

PATIENCE = 600.0
"""Seconds to wait for a file that another agent edits."""

Model = Callable[[str, str], str]
"""Returns the new text of a file, given the task and the text; put your own here."""


def scripted_model(task: str, text: str) -> str:
    """Stand in for a language model: append the task as a line, after some thinking."""
    time.sleep(0.05)
    return f"{text}{task}\n"


@contextmanager
def editing(page: Page, path: str) -> Iterator[None]:
    """Hold a file: every agent that asks for it meanwhile waits. Raises Conflict if that takes too long.

    All agents add the same observation, since it has the same dedupe key; one of them gets the claim. A claim ends by
    itself should its agent die.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            file = page.add("dependency", f"{path} is being edited", dedupe_key=f"file:{path}", tags=["file"])
            claim = page.claim(file.id, ttl=HELD_FOR)
            break
        except Conflict:  # another agent holds it, or has just given it back
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
    try:
        yield
    finally:
        page.resolve(file.id, reason="done", fence=claim.fence)


def carry_out(page: Page, repository: Path, task: Observation, model: Model) -> None:
    """Edit the files of a task, holding all of them: in the order of their names, so that no two agents deadlock."""
    paths = sorted(task.context["files"])
    with ExitStack() as held:
        for path in paths:
            held.enter_context(editing(page, path))
        for path in paths:
            file = repository / path
            file.write_text(model(task.content, file.read_text() if file.exists() else ""))


def run(name: str, repository: Path, model: Model = scripted_model) -> None:
    """Work until no task is open. Exits if there is no repository, which would fail all tasks."""
    if not repository.is_dir():
        sys.exit(f"{repository} is not a directory; name your checkout")
    with Bus.connect(source=name) as bus:
        page = bus.page("repo")
        while page.list(status="active", tags="task", limit=1):
            job = page.claim_next(tags="task", ttl=HELD_FOR)
            if job is None:  # other agents hold the remaining tasks, or the tasks that block them
                time.sleep(0.02)
                continue
            with job:
                carry_out(page, repository, job.observation, model)
                job.resolve(reason=f"done by {name}")
                print(f"{name}: {job.observation.content}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: agent.py NAME REPOSITORY")
    run(sys.argv[1], Path(sys.argv[2]))
