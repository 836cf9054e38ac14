"""The executor: takes up suggestions, one at a time, and acts on what they rest on."""

from datetime import timedelta
from pathlib import Path

from scratchbus.daemon.command import Daemon, daemon, duration_option, file_option
from scratchbus.roles.executor import CLAIM_TTL, Executor
from scratchbus.roles.tools import blocklist, default_blocklist, notify, read_tools
from scratchbus.settings import shipped


@daemon("executor")
@file_option("--tools", default=lambda: shipped("tools.yaml"), help="Which tool for what.")
@file_option("--blocklist", "blocklist_file", default=default_blocklist, help="Where blocked addresses go.")
@duration_option("--claim-ttl", default=CLAIM_TTL, help="How long a claim holds when its holder dies.")
def main(daemon: Daemon, tools: Path, blocklist_file: Path, claim_ttl: timedelta) -> None:
    """Take up what the router suggests, act on it, and record what was done."""
    chest = {"blocklist": blocklist(blocklist_file), "notify": notify}
    table = read_tools(tools, known=chest)
    daemon.serve(lambda bus, stop: Executor(bus, daemon.page, table, chest, claim_ttl).run(stop))


if __name__ == "__main__":
    main()
