"""An addition and a read pass through few functions and modules, so that a reader can follow them."""

import pytest

from tools.house import paths


@pytest.fixture(scope="module")
def least() -> dict[str, list[int]]:
    measured = [paths() for _ in range(3)]  # every 10 s an addition does extra work
    return {
        name: [min(figures) for figures in zip(*(each[name] for each in measured), strict=True)] for name in measured[0]
    }


@pytest.mark.parametrize(
    ("action", "most"),
    [("one page.add", (25, 9, 18)), ("one active with two events to fold", (25, 9, 20))],
)
def test_an_action_passes_few_functions_and_modules(least, action, most):
    """The figures are those of `make house`: functions, modules, changes of module."""
    assert all(figure <= limit for figure, limit in zip(least[action], most, strict=True)), least[action]
