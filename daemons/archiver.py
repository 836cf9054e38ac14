"""The archiver: moves old events from the log to the archive, and out of the engine's memory."""

from scratchbus.archive.archiver import run_archiver
from scratchbus.daemon.command import Daemon, daemon


@daemon("archiver", on_one_page=False)
def main(daemon: Daemon) -> None:
    """Move what is older than the setting `retain` to the setting `archive_url`, again and again."""
    daemon.serve(run_archiver)


if __name__ == "__main__":
    main()
