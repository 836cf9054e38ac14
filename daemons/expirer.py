"""The expirer: appends what time brings, such as expiry, lapsed claims and reminders."""

from scratchbus.daemon.command import Daemon, daemon
from scratchbus.scheduling.expiry import run_expirer


@daemon("expirer", on_one_page=False)
def main(daemon: Daemon) -> None:
    """Append what time brings, on all pages: expiry, auto-archive, lapsed claims, reminders."""
    daemon.serve(run_expirer)


if __name__ == "__main__":
    main()
