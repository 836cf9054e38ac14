"""The fork server of test processes, which has no threads and has already imported what they need."""

from __future__ import annotations

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.preloaded"])  # for all users: there is one server
