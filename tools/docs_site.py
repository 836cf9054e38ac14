"""What the site has besides docs/: the README, the changelog, configuration, an icon, and the API from the docstrings.

A hook of MkDocs. In the repository, the documents link to files outside docs/; on the site, to these pages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.txt",
}
"""Files of the root, and where they are on the site."""

STUBS = {"scratchbus": "scratchbus/__init__.pyi", "daemon": "scratchbus/daemon/__init__.pyi"}
WHOLE = {"settings": "scratchbus.settings", "errors": "scratchbus.errors"}
FIRST = ("Bus", "Page", "Observation")
_NAME = re.compile(r"^from (\S+) import (\w+) as (\w+)$", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)")


def _at_root(markdown: str) -> str:
    """Return a document of the root with its links as they are from the top of the site."""
    return _LINK.sub(lambda link: PAGES.get(link[1], link[1].removeprefix("docs/")), markdown)


def _in_docs(link: re.Match[str], depth: int) -> str:
    """Return a link of a page so many folders deep in docs/; on the site, what leaves docs/ has a folder less."""
    up, _, target = link[1].rpartition("../")
    if link[1].count("../") <= depth:
        return link[1]
    return f"{up and up + '../'}{PAGES.get(target, target)}"


def _api(name: str) -> str:
    """Return the page of a public module: its own docstring, then each of its public names."""
    lines = [f"# `{'scratchbus' if name == 'scratchbus' else f'scratchbus.{name}'}`\n"]
    found = _NAME.findall((ROOT / STUBS[name]).read_text("utf-8"))
    for home, own, public in sorted(found, key=lambda each: (each[2] not in FIRST, each[2].lower())):
        if not public.startswith("Async"):  # they have the same methods, to be awaited
            lines.append(f"::: {home}.{own}\n    options:\n      heading: {public}\n      toc_label: {public}\n")
    return "\n".join(lines)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    for source, target in PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        content = _at_root(text) if source.endswith(".md") else text
        files.append(File.generated(config, target, content=content))
    for path in (ROOT / "config").iterdir():
        files.append(File.generated(config, f"config/{path.name}", abs_src_path=str(path)))
    files.append(File.generated(config, "icon.svg", abs_src_path=str(ROOT / "scratchbus/http/console/icon.svg")))
    for name in STUBS:
        files.append(File.generated(config, f"api/{name}.md", content=_api(name)))
    for name, module in WHOLE.items():
        content = (
            f"# `{module}`\n\n::: {module}\n    options:\n      show_root_heading: false\n      show_submodules: true\n"
        )
        files.append(File.generated(config, f"api/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links out of docs/ lead to the pages added above."""
    if page.file.generated_by:
        return markdown
    depth = page.file.src_uri.count("/")
    return _LINK.sub(lambda link: _in_docs(link, depth), markdown)
