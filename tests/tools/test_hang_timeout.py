"""The plugin that ends a run when a test hangs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = ("-m", "pytest", "-q", "-p", "tests.hang_timeout", "-o", "timeout=60", "-o", "faulthandler_exit_on_timeout=true")
LONG = """import pytest, time
@pytest.mark.timeout({timeout})
def test_takes_two_seconds():
    time.sleep(2)
"""


def run(directory: Path, timeout: float, patience: float) -> subprocess.CompletedProcess[str]:
    """Run a test of two seconds with this timeout mark, where other tests end the run after `patience` seconds."""
    (directory / "test_it.py").write_text(LONG.format(timeout=timeout))
    command = [
        sys.executable,
        *RUN,
        "-o",
        f"faulthandler_timeout={patience}",
        "--rootdir",
        str(directory),
        str(directory),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
@pytest.mark.alone
def test_a_test_gets_the_time_of_its_timeout_mark(tmp_path):
    done = run(tmp_path, timeout=100, patience=0.5)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_hanging_test_ends_the_run(tmp_path):
    done = run(tmp_path, timeout=60.5, patience=0.5)
    assert "test_takes_two_seconds" in done.stderr
    assert done.returncode != 0
