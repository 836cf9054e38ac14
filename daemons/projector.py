"""The projector: folds the log into documents, so that readers do not have to."""

from scratchbus.daemon import Daemon, daemon, run_projector


@daemon("projector", on_one_page=False)
def main(daemon: Daemon) -> None:
    """Fold the log into the current state, on all pages."""
    daemon.serve(run_projector)


if __name__ == "__main__":
    main()
