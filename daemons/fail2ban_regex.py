r"""Python regular expressions of fail2ban's filters, rewritten so that RE2 can search for them in linear time.

Two constructs that RE2 lacks are replaced by equal ones: a condition `(?(group)A|B)` by one pattern for either case,
and `(?:(?! text ).)*`, any characters but this text, by the pattern of the automaton that finds the text. All else
that RE2 lacks is refused: other lookaround, backreferences, atomic groups and possessive repetitions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from scratchbus.daemon import Pattern, UnfitPattern, linear_pattern

_parser: Any = import_module("re._parser")  # not public, but the only parser of these patterns
_MAX_CONDITIONS = 4
_CHECKS = {
    "AT_BEGINNING": "^", "AT_BEGINNING_STRING": r"\A", "AT_END": "$", "AT_END_STRING": r"\Z",
    "AT_BOUNDARY": r"\b", "AT_NON_BOUNDARY": r"\B",
}  # fmt: skip
_CLASSES = {
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s", "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip
_REFUSED = {
    "ASSERT": "lookaround", "ASSERT_NOT": "lookaround other than (?:(?!text).)*", "GROUPREF": "a backreference",
    "ATOMIC_GROUP": "an atomic group", "POSSESSIVE_REPEAT": "a possessive repetition",
}  # fmt: skip

_Tree = list[tuple[Any, Any]]


def linear_patterns(text: str) -> list[Pattern]:
    """Return patterns of which the first that matches a line matches it as the Python expression does.

    Raises UnfitPattern.
    """
    try:
        parsed = _parser.parse(text)
    except (re.error, OverflowError, RecursionError) as problem:
        raise UnfitPattern(f"is not a regular expression: {problem}") from None
    tree, state = list(parsed), parsed.state
    names = {number: name for name, number in state.groupdict.items()}
    flags = "i" if state.flags & re.IGNORECASE else ""
    groups = sorted({value[0] for name, value in _walk(tree) if name == "GROUPREF_EXISTS"})
    if len(groups) > _MAX_CONDITIONS:
        raise UnfitPattern(f"has conditions on {len(groups)} groups; the limit is {_MAX_CONDITIONS}")
    patterns = []
    for case in itertools.product((True, False), repeat=len(groups)):
        branch = _chosen(tree, dict(zip(groups, case, strict=True)))
        if branch is not None:
            pattern = _written(branch, names)
            patterns.append(linear_pattern(f"(?{flags}:{pattern})" if flags else pattern))
    return patterns


def _children(name: str, value: Any) -> list[_Tree]:
    """Return the parts of an element."""
    match name:
        case "BRANCH":
            return [list(each) for each in value[1]]
        case "SUBPATTERN":
            return [list(value[3])]
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return [list(value[2])]
        case "ASSERT" | "ASSERT_NOT":
            return [list(value[1])]
        case "GROUPREF_EXISTS":
            return [list(value[1]), list(value[2] or [])]
        case "ATOMIC_GROUP":
            return [list(value)]
    return []


def _walk(tree: _Tree) -> Iterator[tuple[str, Any]]:
    for op, value in tree:
        yield str(op), value
        for part in _children(str(op), value):
            yield from _walk(part)


def _groups_in(element: tuple[Any, Any]) -> set[int]:
    return {value[0] for name, value in _walk([element]) if name == "SUBPATTERN" and value[0]}


def _chosen(tree: _Tree, took_part: Mapping[int, bool]) -> _Tree | None:
    """Return the tree in which these groups take part or not, without conditions; None if that cannot be."""
    found: _Tree = []
    for op, value in tree:
        name = str(op)
        needed = {group for group in _groups_in((op, value)) if took_part.get(group)}
        if name == "GROUPREF_EXISTS":
            subtree = _chosen(_children(name, value)[not took_part[value[0]]], took_part)
            if subtree is None:
                return None
            found += subtree
        elif name == "BRANCH":
            eligible = [
                subtree for subtree in _children(name, value) if needed <= set().union(*map(_groups_in, subtree))
            ]
            subtrees = [subtree for subtree in (_chosen(each, took_part) for each in eligible) if subtree is not None]
            if not subtrees:
                return None
            found.append((op, (None, subtrees)))
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            minimum, maximum, _ = value
            subtree = _chosen(_children(name, value)[0], took_part)
            if needed and maximum != 1:
                raise UnfitPattern("has a condition on a group that is repeated, which RE2 lacks")
            if subtree is not None:
                found.append((op, (1 if needed else minimum, maximum, subtree)))
            elif minimum or needed:
                return None
        elif name == "SUBPATTERN":
            if took_part.get(value[0]) is False:
                return None
            subtree = _chosen(_children(name, value)[0], took_part)
            if subtree is None:
                return None
            found.append((op, (*value[:3], subtree)))
        else:
            found.append((op, value))
    return found


def _written(tree: _Tree, names: Mapping[int, str]) -> str:
    return "".join(_element(str(op), value, names) for op, value in tree)


def _element(name: str, value: Any, names: Mapping[int, str]) -> str:
    match name:
        case "LITERAL":
            return _char(value)
        case "NOT_LITERAL":
            return f"[^{_char(value)}]"
        case "ANY":
            return "."
        case "AT":
            return _CHECKS[str(value)]
        case "IN":
            return f"[{''.join(_class_part(str(op), each) for op, each in value)}]"
        case "BRANCH":
            return f"(?:{'|'.join(_written(list(each), names) for each in value[1])})"
        case "SUBPATTERN":
            group, added, removed, subtree = value
            added_flag, removed_flag = ("i" if flags & re.IGNORECASE else "" for flags in (added, removed))
            inner = _written(list(subtree), names)
            inner = (
                f"(?{added_flag}{'-' if removed_flag else ''}{removed_flag}:{inner})"
                if added_flag or removed_flag
                else inner
            )
            return f"(?P<{names[group]}>{inner})" if group in names else f"(?:{inner})"
        case "MAX_REPEAT" | "MIN_REPEAT":
            minimum, maximum, subtree = value
            body, lazy = list(subtree), "?" if name == "MIN_REPEAT" else ""
            avoided = _avoided(body)
            if avoided and (minimum, maximum) == (0, _parser.MAXREPEAT):
                return f"(?:{_without(avoided, lazy)})"
            bounds = f"{{{minimum},{'' if maximum == _parser.MAXREPEAT else maximum}}}"
            return f"(?:{_written(body, names)}){bounds}{lazy}"
    raise UnfitPattern(f"has {_REFUSED.get(name, name)}, which RE2 lacks")


def _char(code: int) -> str:
    return re.escape(chr(code)) if chr(code).isprintable() else f"\\x{{{code:x}}}"


def _class_part(name: str, value: Any) -> str:
    match name:
        case "NEGATE":
            return "^"
        case "LITERAL":
            return _char(value)
        case "RANGE":
            return f"{_char(value[0])}-{_char(value[1])}"
        case "CATEGORY":
            return _CLASSES[str(value)]
    raise UnfitPattern(f"has {name} in brackets, which is not known here")


def _avoided(body: _Tree) -> str:
    """Return the text of `(?!text).`, or an empty one if this is something else."""
    match [(str(op), value) for op, value in body]:
        case [("ASSERT_NOT", (1, inner)), ("ANY", _)] if all(str(op) == "LITERAL" for op, _ in inner):
            return "".join(chr(code) for _, code in inner)
    return ""


def _without(text: str, lazy: str = "") -> str:
    """Return a pattern of all lines that do not contain a text: its automaton, with one state after another removed.

    State n has read n characters of the text; there is no way into the last one. `lazy` is "?" to prefer short lines.
    """
    paths: dict[tuple[int, int], str] = {}
    size, alphabet = len(text), sorted(set(text))
    excluded = "".join(map(re.escape, alphabet))
    for state in range(size):
        paths[state, 0] = f"[^{excluded}\\n]"
        for char in alphabet:
            matched = text[:state] + char
            target = next(length for length in range(len(matched), -1, -1) if matched.endswith(text[:length]))
            if target < size:
                existing = paths.get((state, target))
                paths[state, target] = re.escape(char) if existing is None else f"{existing}|{re.escape(char)}"
    ends = dict.fromkeys(range(size), "")  # how a line may end in each state, or at once
    for eliminated in range(size - 1, 0, -1):
        loop = f"(?:{paths[eliminated, eliminated]})*{lazy}" if (eliminated, eliminated) in paths else ""
        for state in range(eliminated):
            if (state, eliminated) not in paths:
                continue
            step = f"(?:{paths.pop((state, eliminated))}){loop}"
            extended = f"{step}(?:{ends[eliminated]})" if ends[eliminated] else step
            ends[state] = f"{ends[state]}|{extended}" if lazy else f"{extended}|{ends[state]}"
            for target in range(eliminated):
                if (eliminated, target) in paths:
                    extended = f"{step}(?:{paths[eliminated, target]})"
                    paths[state, target] = (
                        f"{paths[state, target]}|{extended}" if (state, target) in paths else extended
                    )
    return f"(?:{paths[0, 0]})*{lazy}(?:{ends[0]})"
