"""Tasks: their ids, and the text that replaces one in a conversation."""

import pytest

from scratchbus.domain.tasks import TaskId, replacement, task_id
from scratchbus.errors import InvalidId


def test_a_task_id_names_its_session():
    text = "task_1768000000000@team@home:1"
    assert task_id(text) == TaskId("task_1768000000000", "team@home:1")
    assert str(task_id(text)) == text


@pytest.mark.parametrize("text", ["", None, 7, "task_x@s", "task_٥@s", "1768000000000@s", "task_1768000000000"])
def test_an_invalid_task_id_is_refused(text):
    with pytest.raises(InvalidId):
        task_id(text)


def test_a_summary_replaces_the_steps():
    text = replacement("Count the beans", "There are 42.")
    assert "Count the beans" in text
    assert text.endswith("\nThere are 42.")
