"""The log watcher: publishes what its rules find in a log file."""

from pathlib import Path

import click

from scratchbus.daemon.command import Daemon, daemon, file_option
from scratchbus.roles.logwatch import Logwatch
from scratchbus.roles.memory import MemoryFile, default_path
from scratchbus.roles.rules import read_rules
from scratchbus.settings import shipped


@daemon("logwatch")
@file_option("--rules", default=lambda: shipped("logwatch.yaml"), help="What to look for, and what to publish.")
@file_option("--log", required=True, help="The log file.")
@click.option("--follow", is_flag=True, help="Go on with what is written to it, through rotation and truncation.")
@click.option("--from-start", is_flag=True, help="Begin at its first line again; nothing is counted twice.")
@file_option("--state", help="Where to remember how far it was read; a file of its own by default.")
def main(daemon: Daemon, rules: Path, log: Path, follow: bool, from_start: bool, state: Path | None) -> None:
    """Publish what the rules find in a log file, and remember how far it was read."""
    memory = MemoryFile(state or default_path(log, daemon.target))
    watch = Logwatch(daemon.page, read_rules(rules), log, memory, from_start)
    daemon.serve(lambda bus, stop: watch.run(bus, stop, follow), patient=follow)


if __name__ == "__main__":
    main()
