"""Lines of a segment: they restore any entry, and keep only a hash of an erased event."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratchbus.archive import lines
from scratchbus.archive.lines import (
    BadLine,
    check_line,
    check_lines,
    encode_entries,
    erase_lines,
    hash_of,
    is_erased,
    is_kind,
    position_of,
    restore,
)
from scratchbus.eventlog.raw_entries import LAYOUT

BODY = b'{"v":1,"by":"tester","content":"x"}'


def entry(*values, seq=7, names=LAYOUT):
    return [b"1795263356927-%d" % seq, [part for pair in zip(names, values, strict=True) for part in pair]]


USUAL = entry(b"id-1", b"01M7YS0X7YM47HSFZZZJC2DZ9D", b"main", b"added", b"observation", b"1/1", b"", BODY)


def line_of(given):
    (line,) = zip(*encode_entries([given]), strict=True)
    return line


def test_a_line_is_json_that_ends_with_the_unchanged_body():
    text, hash, seq, page, subject = line_of(USUAL)
    parsed = json.loads(text)
    assert list(parsed) == [
        "seq", "ms", "id", "subject", "page", "kind", "type", "batch", "prev", "salt", "event"
    ]  # fmt: skip
    assert (parsed["seq"], parsed["ms"], parsed["event"]["content"]) == (7, 1795263356927, "x")
    assert text.endswith(b',"event":' + BODY + b"}")
    assert (hash, seq, page, subject) == (sha256(text).digest(), 7, b"main", b"01M7YS0X7YM47HSFZZZJC2DZ9D")
    assert is_kind(text, (b'linked"', b'added"'))
    assert not is_kind(text, (b'add"',))


@pytest.mark.parametrize(
    "given",
    [
        USUAL,
        entry('ü"\\\n\x00'.encode(), b"s", b"p", b"k", b"t", b"1/1", b"1-1", BODY),
        entry(b'","event":{"salt":"', b',"salt":"', b"p", b'","kind":"', b"t", b"1/1", b"1-1", BODY),
        entry(b"\xff\xfe", b"s", b"p", b"k", b"t", b"1/1", b"", BODY),
        entry(b"i", b"s", b"p", b"k", b"t", b"1/1", b"", b"not json"),
        entry(b"i", b"s", b"p", b"k", b"t", b"1/1", b"", b""),
        entry(b"i", b"s", b"p", b"k", b"t", b"1/1", b"", b'{"v":NaN}'),
        entry(b"i", b"s", b"p", b"k", b"t", b"1/1", b"", b'{"v":\n1}'),
        entry(b"i", b"s", b"p", b"k", b"t", b"1/1", b"", b'{"v":"\xff"}'),
        entry(b"i", b"s", b"p", b"k", b"t", b"1/1", b"", b' {"v": 1, "v": 2} '),
        entry(b"only", names=[b"something"]),
        entry(b"1", b"2", names=[b"id", b"id"]),
        entry(b"i", b"s", b"p", b"k", b"t", b"1/1", b"", b'{"v":' + b"[" * 300 + b"]" * 300 + b"}"),
    ],
    ids=range(13),
)
def test_an_entry_survives_as_a_line_of_json(given):
    text, *_ = line_of(given)
    assert restore(text) == given
    assert b"\n" not in text
    assert json.loads(text)["seq"] == 7
    assert check_line(text, 7)[0] == text


@given(st.lists(st.binary(), min_size=8, max_size=8), st.booleans())
def test_an_entry_with_any_fields_survives_as_a_line(values, is_json):
    made = entry(*values[:7], json.dumps([values[7].hex()]).encode() if is_json else values[7])
    text, *_ = line_of(made)
    assert restore(text) == made
    assert b"\n" not in text
    json.loads(text)


@given(
    st.lists(st.text('a1 ,:"\\\\{}\x7f\x00ü', max_size=3), min_size=7, max_size=7),
    st.integers(0, 400),
    st.integers(0, 9),
    st.sampled_from(
        [b"", b"0", b"-", b'"', b"\\", b"\n", b"}", b',"ms":1', b',"salt":"', b',"event":', b"\xff", b"9" * 19]
    ),
)
def test_lines_are_read_alike_with_and_without_a_parser(values, at, length, inserted):
    text, *_ = line_of(entry(*map(str.encode, values), BODY))
    for line in (text, text[:at] + inserted + text[at + length :]):
        for read, parse in ((restore, lines._restore_parsed), (position_of, lines._position_parsed)):
            assert outcome(read, line) == outcome(parse, line)


def outcome(read, line):
    try:
        return read(line)
    except BadLine:
        return "bad"


@pytest.mark.parametrize("bad", [None, 0, 49, 50, 119])
def test_lines_are_checked_alike_together_and_alone(bad):
    entries = [entry(*USUAL[1][1::2], seq=seq) for seq in range(7, 127)]
    texts = erase_lines(encode_entries(entries).texts, {70})
    if bad is not None:
        texts[bad] = texts[bad].replace(b'"v":1', b'"v":NaN')
    found = check_lines(texts, 7)
    for seq, text in enumerate(texts, 7):
        if seq - 7 == bad:
            with pytest.raises(BadLine, match="canonical"):
                next(found)
            return
        assert next(found) == check_line(text, seq)
        assert is_erased(text) is (seq == 70)


@pytest.mark.parametrize(
    ("change", "is_event"),
    [(lambda texts: texts.insert(0, texts.pop(1)), 8), (lambda texts: texts.pop(60), 68),
     (lambda texts: texts.insert(60, texts[59]), 66)],
    ids=["swapped", "missing", "doubled"],
)  # fmt: skip
def test_a_line_in_the_place_of_another_is_refused(change, is_event):
    texts = [*encode_entries([entry(*USUAL[1][1::2], seq=seq) for seq in range(7, 127)]).texts]
    change(texts)
    with pytest.raises(BadLine, match=f"^it is event {is_event}$"):
        list(check_lines(texts, 7))


IS_RAW = {
    BODY: False,
    b'{"v":"NaN, Infinity \xc3\xa9","deep":' + b"[" * 90 + b"]" * 90 + b"}": False,
    b'{"v":"NaN","many":[' + b",".join([b"[]"] * 200) + b"]}": False,
    b'{"many":[' + b",".join([b"[]"] * 200) + b"]}": False,
    b'{"v":' + b"[" * 200 + b"]" * 200 + b"}": False,
    b'{"v":' + b"[" * 201 + b"]" * 201 + b"}": True,
    b'{"v":' + b"[" * 5_000 + b"]" * 5_000 + b"}": True,
    b'{"v":\n1}': True,
    b'{"v":\r1}': True,
    b'{"v":NaN}': True,
    b'{"v":NaN,"many":[' + b",".join([b"[]"] * 200) + b"]}": True,
    b'{"v":[NaN,-Infinity],"many":[' + b",".join([b"[]"] * 200) + b"]}": True,
    b'{"v":"\xff"}': True,
    b'{"v":"\xc3': True,
    b'\xa9"}': True,
    b'{"v":[{"v":1}': True,
    b'{"v":2}]}': True,
    b"[1]": True,
    b'{"v":1} {"v":2}': True,
}


@pytest.mark.parametrize("others", [0, 1, 49, 250])
@pytest.mark.parametrize("body", IS_RAW, ids=range(len(IS_RAW)))
def test_only_a_json_body_is_embedded_in_a_line(body, others):
    usual = [entry(*USUAL[1][1:-1:2], BODY, seq=seq) for seq in range(8, 8 + others)]
    odd = entry(*USUAL[1][1:-1:2], body)
    texts = encode_entries([*usual, odd, *usual]).texts
    assert (b',"raw":' in texts[others]) is IS_RAW[body]
    assert [*map(restore, texts)] == [*usual, odd, *usual]
    assert check_line(texts[others], 7)[0] == texts[others]


def test_two_lines_of_one_event_have_different_salts():
    assert line_of(USUAL)[0] != line_of(USUAL)[0]


def test_an_erased_line_keeps_only_its_hash():
    text, hash, *_ = line_of(USUAL)
    other, *_ = line_of(entry(*USUAL[1][1::2], seq=8))
    erased, kept = erase_lines([text, other], {7})
    assert json.loads(erased) == {"seq": 7, "ms": 1795263356927, "erased": hash.hex()}
    assert kept == other
    assert hash_of(erased) == hash
    assert restore(erased) is None
    assert check_line(erased, 7)[1] == hash
    assert erase_lines([erased, kept], {7}) == [erased, kept]


@pytest.mark.parametrize(
    "bad", [b"", b"{}", b"null", b'{"seq":7}', b'{"seq":7,"ms":1,"erased":"x"}', b'{"seq":7,"ms":1,"salt":"', b"[1]"]
)
def test_an_invalid_line_is_refused(bad):
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        check_line(bad, 7)
