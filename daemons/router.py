"""The router: ranks what is on a page by urgency, and suggests an action for what is urgent."""

import threading

import click

from scratchbus import Bus
from scratchbus.daemon.command import Daemon, daemon
from scratchbus.roles.router import THRESHOLD, Router


@daemon("router")
@click.option("--threshold", type=click.FloatRange(0, 100), default=THRESHOLD, help="From this urgency on, suggest.")
def main(daemon: Daemon, threshold: float) -> None:
    """Rank what is on the page by urgency, and suggest an action for what is urgent."""

    def route(bus: Bus, stop: threading.Event) -> None:
        with bus.view(daemon.page) as view:
            Router(bus.page(daemon.page), view, threshold).run(stop)

    daemon.serve(route)


if __name__ == "__main__":
    main()
