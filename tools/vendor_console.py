"""Copy the console's third-party modules from npm into `scratchbus/http/console/vendor/`.

The browser loads them as they are: plain ES modules, no build step. A page with the console's Content-Security-Policy
cannot hold an import map, so bare specifiers such as `from "preact"` become relative paths. Each licence goes along.

    python tools/vendor_console.py            fetch the versions below with `npm pack`, write the files
    python tools/vendor_console.py --check    fail if the files differ from those of these versions
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

VENDOR = Path(__file__).resolve().parent.parent / "scratchbus" / "http" / "console" / "vendor"


class Module(NamedTuple):
    """A file of a package: the bare specifier that imports it, and its name here."""

    package: str
    version: str
    file: str
    specifier: str
    name: str
    licence: str = "LICENSE"
    exports: str = ""  # appended, for a script that only sets a global


MODULES = (
    Module("preact", "11.2.0", "dist/preact.mjs", "preact", "preact.js"),
    Module("preact", "11.2.0", "hooks/dist/hooks.mjs", "preact/hooks", "preact-hooks.js"),
    Module("@preact/signals-core", "1.14.5", "dist/signals-core.mjs", "@preact/signals-core", "signals-core.js"),
    Module("@preact/signals", "2.11.4", "dist/signals.mjs", "@preact/signals", "signals.js"),
    Module("htm", "3.1.1", "dist/htm.mjs", "htm", "htm.js"),
    Module("uplot", "1.6.32", "dist/uPlot.iife.min.js", "uplot", "uplot.js", exports="export default uPlot;\n"),
    Module("uplot", "1.6.32", "dist/uPlot.min.css", "", "uplot.css"),
    Module("@dagrejs/dagre", "3.1.3", "dist/dagre.esm.js", "@dagrejs/dagre", "dagre.js"),
)

_IMPORT = re.compile(r'(\bfrom\s*|\bimport\s*)"([^".][^"]*)"')
_SOURCE_MAP = re.compile(r"\n?//# sourceMappingURL=\S+\s*$")


def main() -> None:
    """Write the vendored files, or compare them."""
    with tempfile.TemporaryDirectory() as directory:
        files = vendored(Path(directory))
    if "--check" in sys.argv[1:]:
        wrong = [name for name, text in files.items() if _kept(name) != text]
        sys.exit(f"these differ from their packages: {', '.join(wrong)}" if wrong else 0)
    VENDOR.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (VENDOR / name).write_text(text, encoding="utf-8")


def vendored(directory: Path) -> dict[str, str]:
    """Return the text of each vendored file by its name, licences included; packages are fetched into `directory`."""
    files = {}
    for module in MODULES:
        package = _package(module, directory)
        files[module.name] = _relative(_member(package, module.file)) + module.exports
        files[_licence_name(module)] = _member(package, module.licence)
    files["README.md"] = _readme()
    return files


def _package(module: Module, directory: Path) -> Path:
    path = directory / f"{module.package.lstrip('@').replace('/', '-')}-{module.version}.tgz"
    if not path.exists():
        command = ["npm", "pack", "--silent", f"{module.package}@{module.version}"]
        subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)
    return path


def _member(package: Path, name: str) -> str:
    with tarfile.open(package) as archive:
        file = archive.extractfile(f"package/{name}")
        if file is None:
            raise FileNotFoundError(f"{package.name} has no file {name}")
        return file.read().decode()


def _relative(text: str) -> str:
    """Return a module with its bare imports as paths, without the address of a source map that is not here."""
    names = {module.specifier: module.name for module in MODULES if module.specifier}
    text = _IMPORT.sub(lambda match: f'{match[1]}"./{names[match[2]]}"', text)
    return _SOURCE_MAP.sub("", text).rstrip() + "\n"


def _licence_name(module: Module) -> str:
    return f"LICENSE-{module.package.lstrip('@').replace('/', '-')}"


def _readme() -> str:
    rows = [f"| `{each.name}` | {each.package} {each.version} | `{_licence_name(each)}` |" for each in MODULES]
    return "\n".join(
        [
            "Third-party modules of the console, as their packages ship them, except that bare imports are paths.",
            "Made by `python tools/vendor_console.py`; do not edit.",
            "",
            "| file | package | licence |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _kept(name: str) -> str | None:
    path = VENDOR / name
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    main()
