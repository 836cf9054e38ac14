"""Random delays do not touch the random generator of the program."""

import os
import random
import re
from pathlib import Path

from scratchbus.engine.retry_limits import JITTER, backoff


def test_a_delay_does_not_change_the_programs_generator():
    before = random.getstate()
    assert 0.01 <= backoff(0) <= 0.02
    assert random.getstate() == before


def test_no_module_uses_the_programs_generator():
    package = Path(__file__).parents[2] / "scratchbus"
    uses = re.compile(r"^\s*(import random\b|from random import (?!Random$))", re.MULTILINE)
    assert [file.name for file in package.rglob("*.py") if uses.search(file.read_text("utf-8"))] == []


def test_a_forked_process_draws_different_delays():
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, repr(JITTER.random()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert float(os.read(reader, 100)) != JITTER.random()
