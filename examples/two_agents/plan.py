"""Plan the work on a repository: four tasks, of which two wait for others."""

from __future__ import annotations

from scratchbus import Bus

TYPE = "action_suggestion"


def plan(bus: Bus) -> None:
    """Add the tasks to the page `repo`."""
    page = bus.page("repo")

    def task(content: str, *files: str, after: tuple[str, ...] = ()) -> str:
        added = page.add(TYPE, content, tags=["task"], context={"files": list(files)}, blocked_by=after, ttl="7d")
        return added.id

    schema = task("Add the column `email`", "schema.sql")
    api = task("Return the email", "api.py", after=(schema,))
    task("Rename `user` to `customer`", "schema.sql", "api.py")
    task("Describe the email", "README.md", after=(schema, api))


if __name__ == "__main__":
    with Bus.connect(source="planner") as opened:
        plan(opened)
