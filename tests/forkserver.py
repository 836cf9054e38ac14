"""Where the processes of tests come from: forked off one that has no threads and has imported what they need."""

from __future__ import annotations

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.preloaded"])  # for all who use it: there is one server
