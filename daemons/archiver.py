"""The archiver: moves old events from the log to the archive, and out of the engine's memory."""

from scratchbus.daemon import Daemon, daemon, run_archiver


@daemon("archiver", on_one_page=False)
def main(daemon: Daemon) -> None:
    """Move events older than the setting `retain` to the setting `archive_url`, at regular intervals."""
    daemon.serve(run_archiver)


if __name__ == "__main__":
    main()
