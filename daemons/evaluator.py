"""The evaluator: resolves what was acted on, once it has been quiet for a while."""

import threading
from datetime import timedelta

from scratchbus import Bus
from scratchbus.daemon.command import Daemon, daemon, duration_option
from scratchbus.roles.evaluator import QUIET_FOR, Evaluator


@daemon("evaluator")
@duration_option("--quiet-for", default=QUIET_FOR, help="How long nothing may have been heard of it.")
def main(daemon: Daemon, quiet_for: timedelta) -> None:
    """Resolve what was acted on, once it has been quiet for a while."""

    def evaluate(bus: Bus, stop: threading.Event) -> None:
        with bus.view(daemon.page) as view:
            Evaluator(bus.page(daemon.page), view, quiet_for).run(stop)

    daemon.serve(evaluate)


if __name__ == "__main__":
    main()
