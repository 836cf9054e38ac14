"""A made-up log of an SSH server for the demo. Its addresses are reserved for documentation."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

_ATTACKERS = {"203.0.113.66": 48, "198.51.100.23": 21, "192.0.2.99": 9, "203.0.113.200": 4, "2001:db8::bad": 3}
"""How many passwords each attacker tries."""

_FORGETFUL = {"192.0.2.10": 1, "198.51.100.7": 2}
"""How often each of these users mistypes the password before logging in."""

_USERS = ("root", "root", "root", "admin", "invalid user oracle", "invalid user test", "invalid user ftp user")
_SUMMED_UP = 5  # attempts that syslog sums up in one line


def sample_log() -> str:
    """Return the log as text; it is always the same."""
    chance = random.Random(2024)
    now = datetime(2026, 3, 14, 6, 25)  # noqa: DTZ001  # a syslog line has no time zone
    lines = []
    for process, message in enumerate(_messages(chance), 4711):
        now += timedelta(seconds=chance.randint(1, 40))
        lines.append(f"{now:%b %e %H:%M:%S} gateway sshd[{process}]: {message}\n")
    return "".join(lines)


def _messages(chance: random.Random) -> Iterator[str]:
    attempts = [address for address, count in (_ATTACKERS | _FORGETFUL).items() for _ in range(count)]
    chance.shuffle(attempts)
    remaining = {address: attempts.count(address) for address in attempts}
    for address in attempts:
        if not remaining[address]:
            continue
        port = chance.randint(32_768, 60_999)
        user = "backup" if address in _FORGETFUL else chance.choice(_USERS)
        message = f"Failed password for {user} from {address} port {port} ssh2"
        if remaining[address] > _SUMMED_UP and chance.random() < 0.1:
            yield f"message repeated {_SUMMED_UP} times: [ {message}]"
            remaining[address] -= _SUMMED_UP
        else:
            yield f"pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh ruser= rhost={address}"
            yield message
            remaining[address] -= 1
        if address in _FORGETFUL and not remaining[address]:
            yield f"Accepted password for backup from {address} port {port} ssh2"
        elif chance.random() < 0.5:
            yield f"Connection closed by {address} port {port} [preauth]"
