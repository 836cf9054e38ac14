"""A worker's queue of pages, compared with a plain dict."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from scratchbus.work.ranked_pages import RankedPages

PAGES = st.sampled_from("abcdef")
STEPS = st.lists(st.one_of(st.tuples(PAGES, st.integers(-3, 3)), st.tuples(PAGES, st.none())), max_size=300)


@given(STEPS)
@example([("a", 0), ("b", 0), ("a", 0)])
def test_the_first_page_has_the_lowest_rank_and_longest_wait(steps):
    queue, model = RankedPages(), dict[str, int]()
    for page, rank in steps:
        if rank is None:
            queue.discard(page)
            model.pop(page, None)
        else:
            queue[page] = rank
            if model.get(page) != rank:
                model.pop(page, None)  # so that it moves to the end
                model[page] = rank
        order = sorted(model, key=model.__getitem__)
        first = queue.first()
        assert (first and first.page) == (order[0] if order else None)
        assert queue.second_rank() == (model[order[1]] if len(order) > 1 else None)
        assert len(queue) == len(model)


def test_outdated_entries_do_not_pile_up():
    queue = RankedPages()
    queue["idle"] = -1
    for turn in range(10_000):
        queue["busy"] = turn % 2
    assert len(queue._heap) < 200
