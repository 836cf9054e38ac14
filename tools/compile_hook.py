"""Compile the modules that every addition passes, for a wheel that is built with SCRATCHBUS_COMPILE=1.

mypyc makes extension modules of them. The wheel also has their sources, and a wheel that is built without the variable
has nothing else: the same code runs either way. Whoever builds it needs a C compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = (
    "commands/add",
    "eventlog/append",
    "eventlog/append_command",
    "eventlog/ids",
    "projections/scratch_page",
)
"""The modules. They define no structs and no scripts: mypyc drops the keywords of a class and the types of its fields.

Modules that work on many events at once, such as the fold, gain nothing: their loops are in C already.
"""


class CompileHook(BuildHookInterface[Any]):
    """Adds the extension modules to a wheel."""

    def dependencies(self) -> list[str]:
        """Return what the build needs: the compiler, and the libraries whose types the modules use."""
        return ["mypy>=2.4,<3", "setuptools", *self.metadata.core.dependencies] if _is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless it is not asked for; an editable installation is never compiled."""
        if version == "editable" or not _is_wanted():
            return
        self._directory = TemporaryDirectory(prefix="scratchbus-compile-")
        directory = Path(self._directory.name)
        extensions = compile_modules(Path(self.root), directory)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"] |= {str(each): str(each.relative_to(directory)) for each in extensions}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the extension modules, which the wheel has now."""
        if build_data["infer_tag"]:
            self._directory.cleanup()


def _is_wanted() -> bool:
    return os.environ.get("SCRATCHBUS_COMPILE", "0") not in ("", "0")


def compile_modules(root: Path, directory: Path) -> list[Path]:
    """Compile a copy of the package in `directory`; return the extension modules. Exits with the compiler's errors."""
    shutil.copytree(root / "scratchbus", directory / "scratchbus", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    modules = [f"scratchbus/{name}.py" for name in COMPILED]
    command = [sys.executable, "-m", "mypyc", "--follow-imports=silent", "--ignore-missing-imports", *modules]
    environment = os.environ | {"MYPYC_OPT_LEVEL": "3", "MYPYC_DEBUG_LEVEL": "0"}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    if done.returncode:
        advice = "mypyc failed: install a C compiler, or build without SCRATCHBUS_COMPILE"
        sys.exit(f"{done.stdout}{done.stderr}{advice}")
    return sorted([*directory.glob("*__mypyc*.so"), *(directory / "scratchbus").rglob("*.so")])
