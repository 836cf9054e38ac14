"""The launcher of the tests survives clients that are killed."""

import random
import subprocess
import time

import pytest

from tests import launcher


@pytest.mark.faults
def test_the_launcher_survives_killed_clients():
    for _ in range(150):
        with subprocess.Popen(launcher.command("-c", "pass"), stderr=subprocess.DEVNULL) as client:
            time.sleep(random.uniform(0, 0.12))
            client.kill()
    said = subprocess.run(launcher.command("-c", "print(5)"), capture_output=True, text=True, check=True).stdout
    assert said == "5\n"
