"""Runs the command line as `python -m scratchbus`."""

import sys

from scratchbus.cli import main

if __name__ == "__main__":
    sys.exit(main())
