"""The settings and their defaults; no default is written anywhere else.

`config/scratchbus.yaml` documents them. The first of these sets a value: the caller, the environment
(`SCRATCHBUS_<NAME>`), the settings file, the default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from scratchbus.domain.field_schemas import validator_of
from scratchbus.domain.ownership import check_instance
from scratchbus.domain.values import MAX_BYTES, Duration, check_bus, check_source, duration_ms, duration_seconds
from scratchbus.errors import InvalidInput, InvalidSource, InvalidURL, SettingsError, SettingsFileError, shown
from scratchbus.telemetry.lazy import imported_on_first_use

if TYPE_CHECKING:
    from scratchbus.domain.yaml_model import FileError

with imported_on_first_use(__name__):
    from scratchbus.domain import yaml_model

PREFIX: Final = "SCRATCHBUS_"
URL_VARIABLE: Final = PREFIX + "URL"
CONFIG_VARIABLE: Final = PREFIX + "CONFIG"
"""The environment variables that name the engine and the settings file, unless the caller does."""

MAX_SHARDS: Final = 16_384
"""The slots of a cluster."""

MAX_BUDGET: Final = 200_000
"""The most tokens that a tool or a request may ask for; programs are not limited."""

DurationName = Literal[
    "default_expiration",
    "auto_archive_after",
    "fresh_timeout",
    "idempotency_window",
    "sweep_interval",
    "keep_files",
    "keep_final",
    "subscription_lease",
    "subscription_ttl",
    "retain",
    "archive_interval",
    "socket_timeout",
    "connect_timeout",
]
"""The settings that are durations."""


def _duration(value: Any) -> Any:
    try:
        duration_ms(value)
    except InvalidInput:
        raise ValueError('use a positive duration, such as 90, "90s", "2h", "1h30m" or "7d", or "never"') from None
    return value


def _finite(value: Any) -> Any:
    if duration_ms(_duration(value)) is None:
        raise ValueError('use a positive, finite duration, such as 90, "90s", "2h", "1h30m" or "7d"')
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("write a whole number")  # Python takes True and False for numbers
    return value


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _source(value: str) -> str:
    return check_source(value, "source")


def _url(value: str) -> str:
    if not value:  # as from an unset variable of a script, whose author means another bus than the embedded one
        raise ValueError("write the URL of an engine, or leave it out for the embedded engine")
    return value


Lasting = Annotated[Duration, BeforeValidator(_duration)]
Finite = Annotated[Duration, BeforeValidator(_finite)]
Whole = Annotated[int, BeforeValidator(_number)]
Lower = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)


class Settings(BaseModel):
    """How a process uses the bus. Immutable; `load_settings` makes it, `config/scratchbus.yaml` documents it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    url: Annotated[str, AfterValidator(_url)] | None = Field(default=None, repr=False)  # it may hold a password
    bus: Annotated[str, AfterValidator(check_bus)] = "scratchbus"
    source: Annotated[str, AfterValidator(_source)] | None = None
    instance: Annotated[str, AfterValidator(check_instance)] | None = Field(
        default=None, repr=False
    )  # it proves claims
    kind: Literal["subagent", "person", "daemon"] = "subagent"
    shards: Annotated[Whole, Field(ge=1, le=MAX_SHARDS)] | None = None
    home: Path | None = None
    appendfsync: Literal["everysec", "always"] = "everysec"
    ack: Literal["memory", "fsync", "replica"] = "memory"
    replicas: Annotated[Whole, Field(ge=1)] = 1
    socket_timeout: Finite = "5s"
    connect_timeout: Finite = "5s"

    observation_types: Path | None = None
    relations: Path | None = None
    max_observations: Annotated[Whole, Field(ge=1)] = 100
    on_full: Literal["displace", "refuse"] = "displace"
    max_content: Annotated[Whole, Field(ge=1, le=MAX_BYTES)] = MAX_BYTES

    max_note_content: Annotated[Whole, Field(ge=1, le=MAX_BYTES)] = 4_000
    max_note_tags: Annotated[Whole, Field(ge=0, le=1_000)] = 10
    max_notepad: Annotated[Whole, Field(ge=1, le=1_000_000)] = 100_000
    max_turn: Annotated[Whole, Field(ge=1, le=1_000_000)] = 100_000
    max_text: Annotated[Whole, Field(ge=1, le=1_000_000)] = 100_000
    max_files: Annotated[Whole, Field(ge=1)] = 256 * 1024 * 1024
    keep_files: Lasting = "30d"

    default_expiration: Lasting = "7d"
    auto_archive_resolved: bool = True
    auto_archive_after: Lasting = "1h"
    sweep_interval: Finite = "1s"
    keep_final: Lasting = "7d"
    subscription_lease: Finite = "3s"
    subscription_ttl: Lasting = "30d"

    archive_url: Annotated[str, BeforeValidator(_text)] | None = Field(default=None, repr=False)  # it may hold a key
    retain: Finite = "7d"
    retain_events: Annotated[Whole, Field(ge=1)] = 10_000
    archive_segment: Annotated[Whole, Field(ge=1, le=1_000_000)] = 50_000
    archive_interval: Finite = "1m"

    context_tokens: Annotated[Whole, Field(ge=1)] = 200_000
    context_budget: Annotated[Whole, Field(ge=1)] | None = None
    compaction_threshold: Annotated[float, Field(gt=0, le=1)] = 0.8

    log_reads: Annotated[float, Field(ge=0, le=1)] = 0

    fresh_timeout: Finite = "30s"
    idempotency_window: Finite = "7d"

    log_level: Annotated[Literal["debug", "info", "warning", "error"], Lower] = "info"

    @cached_property
    def default_ttl_ms(self) -> int | None:
        """The default time to live of an observation in milliseconds, None for ever."""
        return self.ms("default_expiration")

    @cached_property
    def archive_after_ms(self) -> int | None:
        """The milliseconds after which a closed observation is archived, None for never."""
        return self.ms("auto_archive_after") if self.auto_archive_resolved else None

    @property
    def default_budget(self) -> int:
        """The tokens of a context whose caller sets no budget."""
        return self.context_budget or max(1, self.context_tokens // 8)

    def ms(self, name: DurationName) -> int | None:
        """Return a duration in milliseconds, or None for never."""
        return duration_ms(getattr(self, name), name)

    def seconds(self, name: DurationName) -> float:
        """Return a duration in seconds; never is infinite."""
        return duration_seconds(getattr(self, name), name)


@cache
def _validator() -> Callable[[dict[str, Any]], Settings]:
    return validator_of(Settings)


_ERRORS: Final[Mapping[str, type[InvalidInput]]] = {"source": InvalidSource, "url": InvalidURL}
"""The errors that a bad source or URL raises everywhere."""

_MAX_PATH = 500  # characters that a message shows


class _Given(NamedTuple):
    value: Any
    where: str


def load_settings(path: str | Path | None = None, **overrides: Any) -> Settings:
    """Return the settings: overrides, then the environment, then the file at `path` or $SCRATCHBUS_CONFIG.

    An override of None and an empty variable count as not given; an empty URL or path does not. Relative paths in
    the file are relative to its directory. Raises SettingsError, naming the setting and where it was set.
    """
    given = _from_file(path) | _from_environment(os.environ) | _from_caller(overrides)
    try:
        return _validator()({name: one.value for name, one in given.items()})
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        name = str(first["loc"][0])
        wrong = _ERRORS.get(name, SettingsError)
        raise wrong(f"{given[name].where}: {_reason(name, given[name].value, first)}") from None


def shipped(name: str) -> Path:
    """Return the path of a configuration file that comes with scratchbus, installed or in a checkout."""
    package = Path(__file__).resolve().parent
    for directory in (package / "_config", package.parent / "config"):
        if (directory / name).is_file():
            return directory / name
    raise SettingsError(f"{name} is missing from this installation of scratchbus; reinstall it")


def _from_caller(overrides: Mapping[str, Any]) -> dict[str, _Given]:
    for name in overrides.keys() - Settings.model_fields.keys():
        raise SettingsError(f"{name}: unknown setting; use one of: {', '.join(sorted(Settings.model_fields))}")
    return {
        name: _Given(_expanded(name, value, Path(), name), name)
        for name, value in overrides.items()
        if value is not None
    }


def _from_environment(environment: Mapping[str, str]) -> dict[str, _Given]:
    variables = {name: PREFIX + name.upper() for name in Settings.model_fields}
    return {
        name: _Given(_expanded(name, environment[variable], Path(), variable), variable)
        for name, variable in variables.items()
        if environment.get(variable)
    }


def _from_file(path: str | Path | None) -> dict[str, _Given]:
    named_by = "" if path is not None else f"{CONFIG_VARIABLE}: "
    path = path if path is not None else os.environ.get(CONFIG_VARIABLE) or None
    if path is None:
        return {}
    if path == "" or not isinstance(path, Path | str):
        raise SettingsError(f"config: {shown(path)} is not a path; name the settings file, or leave config out")
    file = _at_home(path, named_by.removesuffix(": ") or "config")
    text = yaml_model.YamlText(read_text(file, SettingsFileError, named_by), str(file), SettingsFileError)
    fields: dict[str, Any] = dict.fromkeys(Settings.model_fields, (yaml_model.Scalar, None))

    class SettingsFile(yaml_model.YamlModel):
        noun = "setting"

    values = text.read(create_model("SettingsFile", __base__=SettingsFile, **fields))
    found = {name: (value, f"{text.location(name)}: {name}") for name, value in values if value is not None}
    return {name: _Given(_expanded(name, value, file.parent, where), where) for name, (value, where) in found.items()}


def read_text(path: Path, error: FileError, named_by: str = "") -> str:
    """Return the text of a file. Raises the error unless it can be read and is UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        problem_text = "is not UTF-8; save it as UTF-8"
    except OSError as problem:
        problem_text = f"cannot be read: {problem.strerror or problem}; check the path"
    except ValueError:
        problem_text = "cannot be read: no file has such a name; check the path"
    raise error(f"{named_by}{path}"[:_MAX_PATH], None, None, problem_text)


def _expanded(name: str, value: Any, base: Path, where: str) -> Any:
    if name in ("home", "observation_types", "relations") and isinstance(value, str | Path):
        return base / _at_home(value, where)
    if name == "archive_url" and isinstance(value, str | Path) and value and "://" not in str(value):
        return str(base / _at_home(value, where))
    return value


def _at_home(path: str | Path, where: str) -> Path:
    """Return a path with `~` or `~user` replaced. Raises SettingsError if there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise SettingsError(f"{where}: {shown(str(path))} has no known home directory; write the whole path") from None


_FORMS = {"bool_parsing": ", true or false", "int_parsing": ", such as 200"}


def _reason(name: str, value: Any, problem: Mapping[str, Any]) -> str:
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInput):
        return str(cause).removeprefix(f"{name}: ")
    if cause is not None:
        return f"{shown(value)} is not valid here; {cause}"
    wanted = "should be a path" if problem["type"] == "path_type" else problem["msg"].removeprefix("Input ")
    wanted = wanted.partition(", unable to ")[0] + _FORMS.get(problem["type"], "")
    return f"{shown(value)} is not valid here; it {wanted}"
