"""Structs decode and refuse event bodies exactly as the pydantic models do."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import asdict
from pydantic import ValidationError

from scratchbus.domain.events import ENVELOPE, EVENTS, Changes
from scratchbus.eventlog.bodies import BodyDecoder
from scratchbus.eventlog.codec import decode_bodies
from scratchbus.eventlog.raw_entries import LAYOUT

NAMES = sorted({name for cls in EVENTS.values() for name in cls.model_fields} | {"v", "unknown", ""})

DEEP = '{"a":' * 250 + "1" + "}" * 250

ODD = (
    "null", "true", "1", "-1", "0", "1.0", "1.5", "1e3", "-0", "-0.0", "9007199254740991", "9007199254740992",
    "18446744073709551616", "1e400", "NaN", "Infinity", "0.1", "1.0000000000000001", '""', '"a"', '"5"', '"active"',
    '"open"', '"resolved"', '"append"', '"ab\\n"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\u0000"', '"\x01"', "[]", "{}",
    '["a"]', "[1]", "[null]", "[{}]", '[{"a":1}]', '{"a":1}', '{"a":1.0,"a":2}', '{"content":"x"}', '{"status":"x"}',
    '{"expires_at":"2026-01-31T12:00:00Z"}', '{"a":{"b":[1,2.5,null,"c",1e22,123456789012345678901234567890]}}',
    '"2026-01-31T12:00:00Z"', '"2026-01-31T12:00:00.123456+02:00"', '"2026-01-31T12:00:00"', '"2026-01-31"',
    '"2026-01-31T12:00:00.1234567Z"', '"2026-01-31T12:00:00.9999999Z"', '"2026-01-31T24:00:00Z"', "1700000000",
    '"1700000000"', "[" * 98 + "]" * 98, "[" * 250 + "]" * 250, DEEP, '{"a":' * 60 + "1" + "}" * 60,
)  # fmt: skip
"""JSON, or nearly JSON, that validators may read differently."""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
fragments = st.sampled_from(ODD) | json_values.map(lambda value: json.dumps(value, ensure_ascii=False))
spaces = st.sampled_from(("", "", "", " ", "\n\t"))

USUAL = {
    "Changes": '{"confidence": 1, "tags": ["a"], "owner": null}',
    "dict": '{"a": 1}', "list": '["a"]', "datetime": '"2026-01-31T12:00:00Z"', "bool": "true", "float": "0.5",
    "int": "3", "str": '"a"',
}  # fmt: skip
"""A valid value of a field, by a word in its type."""
USUAL_TEXTS = {"reason_code": '"resolved"', "operation": '"append"'}


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a kind and a body that is nearly valid for it."""
    kind = draw(st.sampled_from(sorted(EVENTS)))
    fields = EVENTS[kind].model_fields
    required = [name for name, each in fields.items() if each.is_required()]
    parts = [(name, _usual(fields[name].annotation)) for name in required]
    own = [name for name in fields if name not in ENVELOPE]
    parts += draw(st.lists(st.tuples(st.sampled_from(own) | st.sampled_from(NAMES), fragments), max_size=4))
    if kind == "updated":
        named = st.tuples(st.sampled_from(sorted({*Changes.__annotations__, "status", "by"})), fragments)
        given = draw(st.lists(named, max_size=3))
        parts.append(("changes", f"{{{','.join(f'{json.dumps(name)}:{value}' for name, value in given)}}}"))
    parts = draw(st.permutations(parts))
    space = draw(spaces)
    body = f",{space}".join(f"{json.dumps(name)}{space}:{space}{value}" for name, value in parts)
    return kind, f"{{{body}}}"


def _usual(annotation: Any) -> str:
    text = str(annotation)
    return next((value for name, value in USUAL.items() if name in text), '"resolved"')


def _exact(value: Any) -> Any:
    """Return a value in a form that tells 1 from 1.0 and True, and -0.0 from 0.0, but not one UTC from another."""
    match value:
        case dict():
            return {name: _exact(each) for name, each in value.items()}
        case list():
            return [_exact(each) for each in value]
        case datetime():
            return value.isoformat()
    return repr(value)


@pytest.mark.parametrize("count", [1, 2])
@given(bodies())
@example(("added", f'{{"by":"a","content":"b","context":{DEEP}}}'))
@example(("added", '{"by":"a","content":"b","expires_at":"2026-01-31T12:00:00.1234567Z"}'))
@example(("claimed", '{"by":"a","holder":"b","ttl":1,"owner":"ab\\n"}'))
@example(("lapsed", '{"by":"a","id":"b"}'))
@example(("lapsed", '{"by":"a"} '))
@example(("lapsed", '{"by":"a"}x'))
def test_structs_and_models_decode_a_body_alike(count: int, given: tuple[str, str]) -> None:
    kind, text = given
    body = text.encode("utf-8", "surrogatepass")
    read = _decoded(kind, body, count)
    try:
        model = EVENTS[kind].__pydantic_validator__.validate_json(body).__dict__
    except ValidationError as refused:
        first = refused.errors()[0]
        expected: object = f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"
        found = read.reason
    else:
        expected = [(name, _exact(value)) for name, value in model.items() if name not in ENVELOPE]
        found = [(name, _exact(value)) for name, value in asdict(read).items() if name not in ENVELOPE]
    assert found == expected


def _decoded(kind: str, body: bytes, count: int) -> Any:
    """Decode `count` equal entries together and return the first body."""
    values = dict.fromkeys(LAYOUT, b"") | {b"kind": kind.encode(), b"event": b'{"v":2,' + body[1:]}
    return decode_bodies([[b"1-1", [part for pair in values.items() for part in pair]]] * count, 0).bodies[0]


@pytest.mark.parametrize("kind", sorted(set(EVENTS) - {"todo_written"}))
@pytest.mark.parametrize("count", [1, 2])
def test_common_bodies_decode_without_the_model(kind: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = EVENTS[kind].model_fields
    usual = {name: _usual(each.annotation) for name, each in fields.items() if each.is_required()}
    usual |= {name: value for name, value in USUAL_TEXTS.items() if name in fields}
    monkeypatch.setattr(BodyDecoder, "by_model", lambda *_: pytest.fail("the model was used"))
    body = ",".join(f"{json.dumps(name)}:{value}" for name, value in usual.items())
    assert _decoded(kind, f"{{{body}}}".encode(), count).by == "a"
