"""The items of a store in memory."""

from unittest.mock import Mock

import pytest

from scratchbus.domain.items import StoreItem
from scratchbus.projections import item_index
from scratchbus.projections.item_index import ItemIndex


def item(value, seq=1):
    place = {"added_ms": 1, "added_seq": 1, "ms": seq, "seq": seq}
    return StoreItem(id="item_a", namespace=["n"], key="k", value=value, **place)


def test_the_size_of_an_item_index_includes_the_values():
    index, empty = ItemIndex(), ItemIndex()
    empty.load({"item_a": item({})})
    empty.loaded()
    index.load({"item_a": item({"a": "x" * 50_000, "b": [{"c": "y" * 10_000}], "d": 7})})
    index.loaded()
    assert index.size == empty.size + 60_000
    index.load({"item_a": item({}, 2)})
    index.loaded()
    assert index.size == empty.size


def test_a_query_works_after_an_interrupted_one(monkeypatch):
    index = ItemIndex()
    index.load({"item_a": item({"a": "some words"})})
    index.loaded()
    with monkeypatch.context() as patch:
        patch.setattr(item_index, "text_of", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            index.search((), {}, "words", 10, 0, 0)
    assert [found.item.key for found in index.search((), {}, "words", 10, 0, 0)] == ["k"]


def test_a_query_finds_the_best_match_first_and_of_equal_ones_the_first_added():
    index = ItemIndex()
    texts = {"a": "cats, among much else that is said here at some length", "b": "cats", "c": "cats cats", "d": "cats"}
    for seq, (key, text) in enumerate(texts.items(), 1):
        index.load(
            {
                f"item_{key}": item({"a": text}, seq).model_copy(
                    update={"id": f"item_{key}", "key": key, "added_seq": seq}
                )
            }
        )
    index.loaded()
    found = index.search((), {}, "cats", 10, 0, 0)
    assert [each.item.key for each in found] == ["c", "b", "d", "a"]


def test_a_word_is_found_within_text_without_spaces():
    index = ItemIndex()
    index.load({"item_a": item({"a": "数据库在凌晨重新启动"})})
    index.loaded()
    assert index.search((), {}, "重启", 10, 0, 0)
    assert not index.search((), {}, "会议", 10, 0, 0)
