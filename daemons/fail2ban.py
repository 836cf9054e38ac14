"""A filter of fail2ban as a rule of the log watcher: its `failregex` say which lines are failed attempts, and by whom.

What is read of a filter: `failregex`, `ignoreregex` and `prefregex` with what they name (`%(name)s`, `<name>`), files
it includes, its `.local` file, and parameters as in `sshd.conf[mode=aggressive]`; the tags for addresses, `<F-NOFAIL>`,
`<F-MLFGAINED>`, `<F-CONTENT>`, and `<F-MLFID>` with `<F-MLFFORGET>`: a line without an address is by the one that an
earlier line of the same connection had, while this process runs. The other tags only group. Each failed line counts,
and "message repeated 5 times: [ … ]" counts 5.
"""

from __future__ import annotations

import configparser
import ipaddress
import re
from pathlib import Path
from typing import Any

import structlog

from scratchbus.daemon import Pattern, UnfitPattern
from scratchbus.errors import RulesError
from scratchbus.settings import read_text

from .fail2ban_regex import linear_patterns

_IP4 = r"(?:::f{4,6}:)?(?P<ip4>(?:\d{1,3}\.){3}\d{1,3})"
_IP6 = r"(?P<ip6>(?:[0-9a-fA-F]{1,4}::?|::){1,7}(?:[0-9a-fA-F]{1,4}|:)?)"
_DNS = r"(?P<dns>[\w\-.^_]*\w)"
_ADDRESS = rf"\[?(?:{_IP4}|{_IP6})\]?"
_TAGS = {
    "<HOST>": f"(?:{_ADDRESS}|{_DNS})", "<ADDR>": _ADDRESS, "<F-ADDR/>": _ADDRESS, "<IP4>": _IP4, "<F-IP4/>": _IP4,
    "<IP6>": _IP6, "<F-IP6/>": _IP6, "<DNS>": _DNS, "<F-DNS/>": _DNS, "<F-PORT/>": r"\w+", "<F-ID/>": r"\S+",
}  # fmt: skip
_KEPT = {
    "F-NOFAIL": "nofail",
    "F-MLFGAINED": "gained",
    "F-CONTENT": "content",
    "F-MLFID": "connection",
    "F-MLFFORGET": "forget",
}
_TAG = re.compile(r"<(/?)(F-[A-Z0-9_-]+)>|<(?:HOST|ADDR|IP4|IP6|DNS|SUBNET|CIDR|F-[A-Z0-9_-]+/)>")
_REFERENCE = re.compile(r"%\(([^()%]+)\)s|<([a-z_][\w./-]*)>", re.IGNORECASE)
_MAX_CONNECTIONS = 1_000  # whose addresses are remembered
_MAX_NESTING = 50  # references within references
_MAX_EXPANDED = 1_000_000  # characters, since a text that refers to itself twice doubles each time

# fail2ban takes the time out of a line before it looks at the rest.
_TIME = re.compile(
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:"
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?(?: \d{4})?"  # syslog, Apache
    r"|\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d(?: [+-]\d{4})?"  # nginx, Apache
    r"|\d{4}[-/.]\d\d[-/.]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?)"  # ISO 8601 and the like
)
_REPEATED = re.compile(r"message repeated (\d{1,6}) times: \[ (.*)\]$")

logger = structlog.get_logger(__name__)


class FilterRule:
    """Publishes a risk alert for each address, and for each expression that finds it; see `daemons.rules.Rule`."""

    type: str | None = "risk_alert"

    def __init__(self, name: str, options: dict[str, str], file: Path) -> None:
        self.name = f"fail2ban:{name}"
        self._filter = name
        self._before = self._all(options.get("prefregex", ""), file, "prefregex")
        self._ignored = self._all(options.get("ignoreregex", ""), file, "ignoreregex")
        self._addresses: dict[str, str] = {}  # of connections, by the prefix of their lines
        self._expressions: list[tuple[int, str, list[Pattern]]] = []
        for number, text in enumerate(filter(None, map(str.strip, options.get("failregex", "").splitlines())), 1):
            try:
                if not _finds_address(text + options.get("prefregex", "")):
                    raise UnfitPattern("finds no address, and no connection that may have one")
                self._expressions.append((number, _label(text), _tagged(text)))
            except UnfitPattern as problem:
                logger.warning("expression left out", filter=name, failregex=number, reason=f"it {problem}")
        if not self._expressions:
            raise RulesError(str(file), None, "failregex", "none can be used here; write a rule for --rules instead")

    def _all(self, text: str, file: Path, option: str) -> list[Pattern]:
        try:
            return [each for line in text.splitlines() if line.strip() for each in _tagged(line.strip())]
        except UnfitPattern as problem:
            raise RulesError(str(file), None, option, f"{problem}; write a rule for --rules instead") from None

    def sighting(self, line: str) -> dict[str, Any] | None:
        """Return the arguments of `page.add` for this line, or None when it is no failed attempt of an address."""
        text, times = _TIME.sub("", line, count=1), 1
        if repeated := _REPEATED.search(text):
            text, times = text[: repeated.start()] + repeated[2], int(repeated[1])
        if any(each.search(text) for each in self._ignored):
            return None
        fields: dict[str, str] = {}
        if self._before:
            prefix = next(filter(None, (each.search(text) for each in self._before)), None)
            if prefix is None:
                return None
            fields = prefix.groupdict("")
            text = fields.get("content", text)
        for number, label, patterns in self._expressions:
            found = next(filter(None, (each.search(text) for each in patterns)), None)
            if found is not None:
                return self._observation(number, label, {**fields, **found.groupdict("")}, times)
        return None

    def _address(self, groups: dict[str, str]) -> str:
        """Return the address of a line, or else of its connection; "" if neither is known."""
        connection = groups.get("connection", "")
        host = _host(groups) or self._addresses.get(connection, "")
        self._addresses.pop(connection, None)
        if connection and host and not groups.get("forget"):
            self._addresses[connection] = host  # the last one used
            if len(self._addresses) > _MAX_CONNECTIONS:
                self._addresses.pop(next(iter(self._addresses)))
        return host

    def _observation(self, number: int, label: str, groups: dict[str, str], times: int) -> dict[str, Any] | None:
        host = self._address(groups)
        if not host or groups.get("nofail") or groups.get("gained"):
            return None
        return {
            "type": self.type,
            "content": f"{self._filter}: “{label}”, {host}",
            "dedupe_key": f"{self.name}:{number}:{host}",
            "tags": ["security", "fail2ban", self._filter],
            "context": {"address": host, "filter": self._filter, "failregex": number},
            "confidence": 0.6,
            "times": max(1, times),
        }


def _host(groups: dict[str, str]) -> str:
    """Return the address or name in a line, "" if it has none."""
    try:
        return groups.get("dns") or str(ipaddress.ip_address(groups.get("ip4") or groups.get("ip6") or ""))
    except ValueError:
        return ""


def read_filter(text: str) -> FilterRule:
    """Return the rule that a filter file makes, with parameters in brackets if there are any. Raises RulesError."""
    match = re.fullmatch(r"(.*?)(?:\[(.*)\])?", text, re.DOTALL)
    path = Path(match[1] if match else text)
    parameters: dict[str, str] = {}
    for parameter in filter(None, ((match[2] if match else "") or "").split(",")):
        name, equals, value = parameter.partition("=")
        if not equals:
            problem = f"{parameter!r} is not a parameter of a filter; write name=value, as in sshd.conf[mode=extra]"
            raise RulesError(str(path), None, None, problem)
        parameters[name.strip().lower()] = value.strip().strip("\"'")
    sections = _read(path)
    options = dict(sections.get("Definition", {})) | sections.get("Init", {}) | parameters
    if options.get("maxlines", "1").strip() not in ("", "1"):
        problem = "the filter looks at several lines at once; write a rule for --rules instead"
        raise RulesError(str(path), None, "maxlines", problem)
    try:
        resolved = {
            name: _resolved(options.get(name, ""), options, sections)
            for name in ("prefregex", "failregex", "ignoreregex")
        }
    except (KeyError, RecursionError) as unresolved:
        raise RulesError(str(path), None, None, unresolved.args[0]) from None
    return FilterRule(re.sub(r"[^A-Za-z0-9_.-]", "-", path.stem)[:40], resolved, path)


def _read(path: Path, ancestors: tuple[Path, ...] = ()) -> dict[str, dict[str, str]]:
    """Return the sections of a filter, with those of the files it includes and of its `.local` file."""
    if path in ancestors:
        raise RulesError(str(path), None, "INCLUDES", "includes itself")
    parsed = _parsed(path)

    def included(option: str) -> list[dict[str, dict[str, str]]]:
        files = [path.parent / name for name in parsed.get("INCLUDES", {}).get(option, "").split()]
        return [_read(file, (*ancestors, path)) for file in files if file.exists() or file.suffix != ".local"]

    files_read = [*included("before"), parsed, *included("after")]
    local = path.with_suffix(".local")
    if local.exists() and local != path:
        files_read.append(_parsed(local))
    found: dict[str, dict[str, str]] = {}
    for sections in files_read:
        for section, values in sections.items():
            merged = found.setdefault(section, {})
            before = found.get("DEFAULT", {}) | merged
            merged.update({f"known/{name}": before[name] for name in values if name in before})
            merged.update(values)
    if not ancestors:
        found = {name: {**found.get("DEFAULT", {}), **values} for name, values in found.items()}
    return found


def _parsed(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(
        strict=False, interpolation=None, inline_comment_prefixes=(";",), default_section="",
        delimiters=("=",), comment_prefixes=("#", ";"),
    )  # fmt: skip
    try:
        parser.read_string(read_text(path, RulesError), str(path))
    except (configparser.Error, UnicodeDecodeError) as problem:
        cause = " ".join(str(problem).split())
        raise RulesError(str(path), None, None, f"this is not a filter of fail2ban: {cause}") from None
    return {section: dict(parser[section]) for section in parser.sections()}


def _resolved(text: str, options: dict[str, str], sections: dict[str, dict[str, str]]) -> str:
    """Return a text with its references expanded. Raises KeyError or RecursionError."""

    def expand(found: re.Match[str]) -> str:
        name = (found[1] or found[2]).lower()
        section, slash, key = name.partition("/")
        value = options.get(name)
        if value is None and section == "known":
            value = sections.get("Definition", {}).get(key)
        if value is None and slash:
            value = sections.get(section, {}).get(key)
        if value is None:
            if found[1]:
                raise KeyError(f"%({name})s is not defined in the filter or in what it includes")
            return found[0]  # a tag, or text of the expression
        return value

    for _ in range(_MAX_NESTING):
        before, text = text, _REFERENCE.sub(expand, text)
        if text == before and not any(found[1] for found in _REFERENCE.finditer(text)):
            return text.replace("%%", "%")
        if len(text) > _MAX_EXPANDED:
            break
    raise RecursionError("refers to itself")


def _finds_address(text: str) -> bool:
    return any(tag in text for tag in ("<F-MLFID>", *_TAGS) if tag not in ("<F-PORT/>", "<F-ID/>"))


def _tagged(text: str) -> list[Pattern]:
    """Return the patterns of an expression with tags. Raises UnfitPattern."""
    if "<SKIPLINES>" in text:
        raise UnfitPattern("looks at several lines at once (<SKIPLINES>)")

    def group(found: re.Match[str]) -> str:
        if found[0] in _TAGS:
            return _TAGS[found[0]]
        if not found[2]:
            raise UnfitPattern(f"has the tag {found[0]}, which is not known here")
        if found[1]:
            return ")"
        return f"(?P<{_KEPT[found[2]]}>" if found[2] in _KEPT else "(?:"

    return linear_patterns(_TAG.sub(group, text))


def _label(text: str) -> str:
    """Return the words of an expression, for people; … stands for what varies."""
    label = re.sub(r"<F-[A-Z0-9_-]+>|</F-[A-Z0-9_-]+>", "", text)
    label = re.sub(r"\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)[*+?]?|\[[^\]]*\][*+?]?", "…", label)
    label = re.sub(r"\\[sSdwWbD][*+?]*|\.[*+]\??|<[A-Z]+>|\{\d*,?\d*\}", "…", label).replace("\\", "").strip("^$ ")
    return re.sub(r"…[\s…|:;,*+?]*…|…+", "…", label).strip()[:120]
