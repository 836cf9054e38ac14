"""The expirer: appends events when their time comes, such as expiry, lapsed claims and reminders."""

from scratchbus.daemon import Daemon, daemon, run_expirer


@daemon("expirer", on_one_page=False)
def main(daemon: Daemon) -> None:
    """Append events when their time comes, on all pages: expiry, auto-archive, lapsed claims, reminders."""
    daemon.serve(run_expirer)


if __name__ == "__main__":
    main()
