"""What a bus must hold, derived from its raw log alone: the one oracle that tests compare with.

Nothing here reads a document, a head or an index. `fold` folds a log from its first event, one event at a time and
without checkpoints; `expected` says what heads, sets and indexes follow from the documents. The check after each test
(`tests.inspection`), the fault checker (`tests.faults.checker`), the tests of the past (`tests.past_pages`) and the
golden logs (`tests.golden`) all use it; the model (`tests.model`) ends with the check after each test.
"""
