"""Errors about private files."""

from __future__ import annotations

from scratchbus.errors.base import ScratchbusError


class FilesUnavailable(ScratchbusError):
    """The directory of private files cannot be read or written: no space, no permission, or in use by someone else."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(
            f"{where}: {problem}; free space or fix the permissions, or choose another directory with the setting home"
        )
        self.where = where
