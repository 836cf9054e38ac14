"""The adapters without the packages that they adapt."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("adapter", "package", "extra"),
    [
        ("langgraph", "langgraph", "langgraph"),
        ("anthropic", "anthropic", "anthropic"),
        ("opentelemetry", "opentelemetry", "otel"),
    ],
)
def test_without_its_package_an_adapter_names_the_extra(adapter: str, package: str, extra: str):
    program = f"import sys; sys.modules[{package!r}] = None; import scratchbus.adapters.{adapter}"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1].startswith("ImportError: ")
    assert f"needs: pip install 'scratchbus[{extra}]'" in found.stderr
