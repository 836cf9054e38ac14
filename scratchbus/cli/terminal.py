"""The instance of commands typed one after the other: the session of their terminal."""

from __future__ import annotations

import os


def terminal_instance() -> str:
    """Return the same instance for all commands of this user in one login session, and for no others.

    A script that starts each command in a session of its own names an instance instead.
    """
    return f"{os.uname().nodename} user {os.getuid()} session {os.getsid(0)}"
