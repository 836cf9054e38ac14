"""The router: ranks what is on a page by urgency, and suggests an action for what is urgent."""

import click

from scratchbus.edges.daemon import Daemon, daemon
from scratchbus.roles.router import THRESHOLD, Router


@daemon("router")
@click.option("--threshold", type=click.FloatRange(0, 100), default=THRESHOLD, help="From this urgency on, suggest.")
def main(daemon: Daemon, threshold: float) -> None:
    """Rank what is on the page by urgency, and suggest an action for what is urgent."""
    daemon.serve(lambda bus, stop: Router(bus, daemon.page, threshold).run(stop))


if __name__ == "__main__":
    main()
