"""Runs the command line as `python -m scratchbus.edges.cli`."""

import sys

from scratchbus.edges.cli import main

if __name__ == "__main__":
    sys.exit(main())
