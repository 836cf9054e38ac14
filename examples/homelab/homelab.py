"""A homelab on one page: disks and backups are watched here, SSH logins by the daemon that scratchbus ships.

python homelab.py --backups /srv/backups [--log /var/log/auth.log] [--once]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from scratchbus import Bus, Page
from scratchbus.errors import Claimed, EngineError


def watch_disks(page: Page, disks: list[Path], limit: float) -> None:
    """Alert about disks that are nearly full; resolve the alert when there is room again."""
    for disk in disks:
        try:
            usage = shutil.disk_usage(disk)
        except OSError as error:  # unplugged, or no longer mounted
            problem: str | None = f"{disk} cannot be read: {error.strerror}"
        else:
            used = usage.used / usage.total
            problem = f"{disk} is {used:.0%} full" if used >= limit else None
        report(page, f"disk:{disk}", "risk_alert", problem)


def watch_backups(page: Page, directory: Path, hours: float) -> None:
    """Alert when the newest file in a directory is too old, or there is none."""
    newest = 0.0
    for file in directory.iterdir() if directory.is_dir() else ():
        with suppress(FileNotFoundError):  # an old backup that is being deleted
            newest = max(newest, file.stat().st_mtime if file.is_file() else 0.0)
    age = (time.time() - newest) / 3600
    problem = None
    if not newest:
        problem = f"There is no backup in {directory}"
    elif age > hours:
        problem = f"The newest backup in {directory} is {age:.0f} hours old"
    report(page, f"backup:{directory}", "risk_alert", problem)


def report(page: Page, key: str, type: str, problem: str | None) -> None:
    """Publish a problem, as another occurrence while it lasts, or resolve its observation once it is gone."""
    if problem is not None:
        page.add(type, problem, dedupe_key=key, tags=["homelab"], metadata={"key": key}, ttl="1d")
        return
    for gone in page.list(status="active", tags=["homelab"], metadata={"key": key}):
        with suppress(Claimed):  # someone is on it; a later check resolves it
            page.resolve(gone.id, reason="fine again")


def show(page: Page) -> None:
    """Print the page."""
    for each in page.active():
        print(f"{each.priority:>3}  {each.content}" + (f" ({each.occurrences} times)" if each.occurrences > 1 else ""))


def main() -> None:
    """Watch every minute, or once."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--backups", type=Path, required=True)
    options.add_argument("--disk", type=Path, action="append", default=[])
    options.add_argument("--disk-limit", type=float, default=0.9)
    options.add_argument("--hours", type=float, default=26)
    options.add_argument("--log", type=Path, help="the log of the SSH server")
    options.add_argument("--once", action="store_true")
    given = options.parse_args()
    logwatch = [sys.executable, "-m", "scratchbus.cli", "run", "logwatch", "--log", str(given.log)]
    ssh = None
    with Bus.connect(source="homelab") as bus:
        page = bus.page()
        try:
            if given.log is not None and given.once:
                subprocess.run(logwatch, check=False)  # it says itself what is wrong
            elif given.log is not None:
                ssh = subprocess.Popen([*logwatch, "--follow"])
            while True:
                try:
                    watch_disks(page, given.disk or [Path("/")], given.disk_limit)
                    watch_backups(page, given.backups, given.hours)
                except EngineError as error:
                    if given.once:
                        raise
                    print(f"{error}; the next check tries again", file=sys.stderr)
                if given.once:
                    break
                time.sleep(60)
            show(page)
        finally:
            if ssh is not None:
                ssh.terminate()
                ssh.wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
