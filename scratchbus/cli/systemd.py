"""`systemd`: units with which systemd runs the bus of a user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import click

import scratchbus
from scratchbus.cli.agreed_files import write_files
from scratchbus.cli.commands import BusGroup, given
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.errors import SettingsError

_MARK: Final = "# Written by `scratchbus systemd install`; `scratchbus systemd uninstall` removes it.\n"

_HEAD: Final = """\
[Unit]
Description={what}
{order}
[Service]
"""

_ENGINE: Final = """\
Type=forking
PIDFile={directory}/engine.pid
# An engine that a program started before is stopped cleanly; its clients wait.
ExecStartPre={program} stop
ExecStart={program} start
# Run when the engine has ended by itself, too: this must not stop one that was started meanwhile.
ExecStop=/bin/sh -c 'test -z "$$MAINPID" || exec "$$@"' sh {program} stop
# An engine that `scratchbus stop` stopped stays down.
Restart=on-failure
TimeoutStartSec=60
TimeoutStopSec=30
"""

_DAEMON: Final = """\
Type=exec
ExecStart={program} run {name}{options}
Restart=always
RestartSec=2
# Wrong options or settings stay wrong.
RestartPreventExitStatus=2 5
TimeoutStopSec=15
# An engine that a daemon had to start itself is not its own to end.
KillMode=process
"""

_HARDENED: Final = """\
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=default.target
"""
"""What a user's service manager can enforce without the right to make namespaces."""

_TITLES: Final = {
    "engine": "scratchbus: the embedded engine",
    "projector": "scratchbus: fold the log into the current state",
    "expirer": "scratchbus: expire, archive and remind when the time has come",
    "archiver": "scratchbus: move old events to the archive",
    "logwatch": "scratchbus: publish what rules find in a log",
}


@click.group("systemd", cls=BusGroup)
def systemd() -> None:
    """Write and remove units with which systemd runs the bus."""


_user = click.option("--user", "is_user", is_flag=True, required=True, help="Units of your own service manager.")


@systemd.command(examples=("scratchbus systemd install --user", "scratchbus systemd install --user --journal ssh"))
@_user
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Run a logwatch on this log file.")
@click.option("--journal", metavar="UNIT", help="Run a logwatch on the journal of this unit.")
@click.option("--yes", is_flag=True, help="Write them without asking.")
@pass_invocation
def install(invocation: Invocation, is_user: bool, log: Path | None, journal: str | None, yes: bool) -> None:
    """Write units for the engine, a projector, an expirer and a logwatch, and start them.

    Shows what it writes, and asks first. The engine gets a unit unless --url names a server, the logwatch if --log or
    --journal says what it watches, and an archiver if archive_url is set. The bus, URLs and settings file in force are
    written into the units. Units of an earlier install that are not among them are stopped and removed.
    """
    if log is not None and journal is not None:
        raise click.UsageError("--log and --journal exclude each other: a logwatch reads one of them")
    watched = None if log is None else f" --follow --log {_quoted(str(log.absolute()))}"
    watched = watched if journal is None else f" --follow --journal {_quoted(journal)}"
    folder = _folder()
    units = {folder / f"scratchbus-{name}.service": text for name, text in _units(invocation, watched).items()}
    installed = _installed()
    former = [path for path in installed if path not in units]
    if former and not yes:
        click.echo(f"Units to stop and remove: {', '.join(map(str, former))}", err=True)
    changed = [path.name for path in installed if path in units and path.read_bytes() != units[path].encode()]
    if not write_files(invocation, units, is_agreed=yes, mode=0o600):  # a URL may have a password
        return
    _remove(invocation, former)
    invocation.out.text({"units": [str(path) for path in units]}, "\n".join(map(str, units)))
    if watched is None:
        invocation.out.note("The logwatch is not included; --log FILE or --journal UNIT sets what it watches")
    names = [path.name for path in units]
    _systemctl(invocation, "daemon-reload")
    if changed:
        _systemctl(invocation, "try-restart", *changed)
    _systemctl(invocation, "enable", "--now", *names)


@systemd.command(examples=("scratchbus systemd uninstall --user",))
@_user
@pass_invocation
def uninstall(invocation: Invocation, is_user: bool) -> None:
    """Stop and remove the units that `install` wrote. The data stay."""
    units = _installed()
    _remove(invocation, units)
    if units:
        _systemctl(invocation, "daemon-reload")
    paths = [str(path) for path in units]
    invocation.out.text({"removed": paths}, "\n".join(paths) or "There are no units to remove")


def _installed() -> list[Path]:
    """Return the units that `install` wrote."""
    mark = _MARK.encode()
    return [path for path in sorted(_folder().glob("scratchbus-*.service")) if mark in path.read_bytes()]


def _remove(invocation: Invocation, units: list[Path]) -> None:
    """Stop units and delete their files."""
    if units:
        _systemctl(invocation, "disable", "--now", *(path.name for path in units))
    for path in units:
        path.unlink()


def _units(invocation: Invocation, watched: str | None) -> dict[str, str]:
    """Return the text of each unit, by the name of its program. Raises SettingsError."""
    settings = invocation.settings()
    directory = scratchbus.embedded_directory(settings.url, settings.home)
    program = f"{_quoted(sys.executable)} -P -m scratchbus.cli"
    environment = _environment(invocation, settings, directory)
    after = "After=scratchbus-engine.service\nWants=scratchbus-engine.service\n" if directory else ""
    units = {} if directory is None else {"engine": _ENGINE.format(program=program, directory=_plain(directory))}
    archived = "" if settings.archive_url else None
    for name, options in {"projector": "", "expirer": "", "archiver": archived, "logwatch": watched}.items():
        if options is not None:
            units[name] = _DAEMON.format(program=program, name=name, options=options)
    return {
        name: _MARK
        + _HEAD.format(what=_TITLES[name], order=after if name != "engine" else "")
        + text
        + environment
        + _HARDENED
        for name, text in units.items()
    }


def _environment(invocation: Invocation, settings: Any, directory: Path | None) -> str:
    """Return the lines that name the bus, wherever the unit is started."""
    variables = given(
        SCRATCHBUS_URL=settings.url,
        SCRATCHBUS_HOME=directory and str(directory.absolute()),
        SCRATCHBUS_BUS=settings.bus,
        SCRATCHBUS_ARCHIVE_URL=settings.archive_url,
        SCRATCHBUS_CONFIG=invocation.config and str(Path(invocation.config).absolute()),
    )
    return "".join(f"Environment={_quoted(f'{name}={value}', dollar='$')}\n" for name, value in variables.items())


def _plain(path: Path) -> str:
    return str(path.absolute()).replace("%", "%%")


def _quoted(text: str, *, dollar: str = "$$") -> str:
    """Return a word for a unit file; a command line wants a dollar twice, an environment once. Raises SettingsError."""
    if not text.isprintable():
        raise SettingsError(f"{text!r} cannot be written into a unit; it has characters that are not printable")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", dollar)
    return f'"{escaped}"'


def _folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def _systemctl(invocation: Invocation, *arguments: str) -> None:
    """Run a command of the user's service manager; without one, note what to run."""
    program = shutil.which("systemctl")
    text = " ".join(["systemctl", "--user", *arguments])
    if program is None:
        invocation.out.remark(f"There is no systemctl here; run later: {text}")
        return
    completed = subprocess.run([program, "--user", *arguments], capture_output=True, text=True, check=False)
    if completed.returncode:
        explanation = " ".join(completed.stderr.split()) or f"exit code {completed.returncode}"
        invocation.out.remark(f"This failed, run it yourself: {text} ({explanation})")
