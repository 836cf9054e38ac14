"""A wheel can have the modules compiled that every addition passes through."""

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.compile_hook import COMPILED

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_modules_avoid_features_the_compiler_drops(name: str):
    tree = ast.parse((ROOT / "scratchbus" / f"{name}.py").read_text("utf-8"))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert [each.name for each in classes if each.keywords] == []  # a struct would lose `frozen` and `array_like`
    conditions = [node for node in tree.body if isinstance(node, ast.If)]
    assert [each.lineno for each in conditions if each.orelse] == []  # an else of TYPE_CHECKING would never run


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_wheel_is_compiled_on_request(tmp_path: Path):
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run(build, cwd=ROOT, check=True, env=environment | {"SCRATCHBUS_COMPILE": "1"})
    (wheel,) = tmp_path.glob("*.whl")
    assert not wheel.name.endswith("-none-any.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    assert all((site / "scratchbus" / f"{name}.py").exists() for name in COMPILED)
    modules = ["scratchbus." + name.replace("/", ".") for name in COMPILED]
    program = (
        "from importlib import import_module as load, machinery\n"
        "from scratchbus import Bus\n"
        f"files = [load(name).__file__ for name in {modules}]\n"
        "assert all(file.endswith(tuple(machinery.EXTENSION_SUFFIXES)) for file in files), files\n"
        "with Bus.connect('memory://', source='me') as bus:\n"
        "    page = bus.page('main')\n"
        "    page.add('observation', 'The build is red', ttl='1h')\n"
        "    print(*[seen.content for seen in page.active()])\n"
    )
    environment |= {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("The build is red\n", "")
