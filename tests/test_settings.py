"""Settings: their sources, their validation, and the shipped file that documents them."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from secrets import token_hex

import pytest
import yaml

from scratchbus import Bus
from scratchbus.errors import InvalidSource, InvalidURL, SettingsError, SettingsFileError
from scratchbus.settings import Settings, load_settings, shipped

DOCUMENTED = re.compile(r"#([a-z_]+:.*)")


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("SCRATCHBUS_"):
            monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        file = tmp_path / "scratchbus.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


def documented() -> str:
    """Return the shipped file with every setting uncommented."""
    lines = shipped("scratchbus.yaml").read_text(encoding="utf-8").splitlines()
    return "\n".join(match[1] for line in lines if (match := DOCUMENTED.fullmatch(line)))


# -- the shipped file ----------------------------------------------------------------------------------------------


def test_the_shipped_file_documents_every_setting_with_its_default():
    assert yaml.safe_load(documented()) == Settings().model_dump()


def test_the_shipped_file_lists_settings_in_model_order():
    assert list(yaml.safe_load(documented())) == list(Settings.model_fields)


def test_the_shipped_file_equals_the_defaults(write):
    assert load_settings(shipped("scratchbus.yaml")) == Settings()
    assert load_settings(write(documented())) == Settings()


def test_the_specified_keys_have_their_defaults():
    settings = load_settings()
    assert settings.max_observations == 100
    assert settings.ms("default_expiration") == 7 * 24 * 3600 * 1000
    assert settings.auto_archive_resolved is True
    assert settings.observation_types is None


def test_a_missing_shipped_file_says_to_reinstall():
    with pytest.raises(SettingsError, match="reinstall it"):
        shipped("no_such_file.yaml")


# -- sources of values ---------------------------------------------------------------------------------------------


def test_arguments_override_variables_and_variables_the_file(write, monkeypatch):
    file = write("max_observations: 1\nreplicas: 1\nshards: 1\n")
    monkeypatch.setenv("SCRATCHBUS_REPLICAS", "2")
    monkeypatch.setenv("SCRATCHBUS_SHARDS", "2")
    settings = load_settings(file, shards=3)
    assert (settings.max_observations, settings.replicas, settings.shards) == (1, 2, 3)


def test_none_and_empty_variables_count_as_not_given(monkeypatch):
    monkeypatch.setenv("SCRATCHBUS_SOURCE", "")
    assert load_settings(source=None, max_observations=None) == Settings()


def test_an_empty_url_is_refused_wherever_it_is_set(write, monkeypatch):
    monkeypatch.setenv("SCRATCHBUS_URL", "redis://127.0.0.1:1")
    wanted = "url: '' is not valid here; write the URL of an engine, or leave it out for the embedded engine"
    with pytest.raises(InvalidURL) as refused:
        Bus.connect("")
    assert str(refused.value) == wanted
    monkeypatch.delenv("SCRATCHBUS_URL")
    with pytest.raises(InvalidURL, match=r"yaml:1:1: url: '' is not valid here"):
        load_settings(write('url: ""\n'))


def test_an_empty_path_of_the_settings_file_is_refused():
    with pytest.raises(SettingsError, match=r"^config: '' is not a path; name the settings file, or leave config out$"):
        Bus.connect(f"memory://{token_hex(6)}", config="")


@pytest.mark.parametrize("variable", ["SCRATCHBUS_URL", "SCRATCHBUS_CONFIG"])
def test_the_embedded_engine_is_not_used_silently_with_an_empty_variable(embedded_url, monkeypatch, capsys, variable):
    monkeypatch.setenv("SCRATCHBUS_HOME", embedded_url.removeprefix("embedded:"))
    Bus.connect().close()
    assert "is empty" not in capsys.readouterr().err
    monkeypatch.setenv(variable, "")
    Bus.connect().close()
    assert f"{variable} is empty, so the embedded engine is used" in capsys.readouterr().err
    Bus.connect(f"memory://{token_hex(6)}").close()
    assert "is empty" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("SCRATCHBUS_URL", "redis://localhost", "url", "redis://localhost"),
        ("SCRATCHBUS_MAX_OBSERVATIONS", "200", "max_observations", 200),
        ("SCRATCHBUS_DEFAULT_EXPIRATION", "never", "default_expiration", "never"),
        ("SCRATCHBUS_AUTO_ARCHIVE_RESOLVED", "false", "auto_archive_resolved", False),
        ("SCRATCHBUS_OBSERVATION_TYPES", "types.yaml", "observation_types", Path("types.yaml")),
        ("SCRATCHBUS_LOG_LEVEL", "DEBUG", "log_level", "debug"),
        ("SCRATCHBUS_HOME", "~/bus", "home", Path("~/bus").expanduser()),
    ],
)
def test_settings_are_read_from_variables(monkeypatch, variable, text, name, value):
    monkeypatch.setenv(variable, text)
    assert getattr(load_settings(), name) == value


def test_a_variable_names_the_settings_file(write, monkeypatch):
    monkeypatch.setenv("SCRATCHBUS_CONFIG", str(write("bus: other\n")))
    assert load_settings().bus == "other"


def test_a_file_argument_overrides_the_variable(write, monkeypatch):
    monkeypatch.setenv("SCRATCHBUS_CONFIG", "/no/such/file.yaml")
    assert load_settings(write("bus: other\n")).bus == "other"


def test_a_relative_path_is_relative_to_the_settings_file(write):
    file = write("observation_types: my/types.yaml\nhome: /srv/bus\n")
    settings = load_settings(file)
    assert settings.observation_types == file.parent / "my/types.yaml"
    assert settings.home == Path("/srv/bus")


def test_a_key_without_a_value_is_the_default(write):
    assert load_settings(write("max_observations:\n")) == Settings()


def test_durations_convert_to_milliseconds_and_seconds():
    settings = load_settings(default_expiration="never", auto_archive_after=90, socket_timeout="250ms")
    assert settings.ms("default_expiration") is None
    assert settings.seconds("default_expiration") == math.inf
    assert settings.ms("auto_archive_after") == 90_000
    assert settings.seconds("socket_timeout") == 0.25


def test_a_password_in_the_url_is_not_shown():
    assert "secret" not in repr(load_settings(url="redis://:secret@localhost"))


# -- validation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("max_observations", "many", "'many' is not valid here; it should be a valid integer, such as 200"),
        ("max_observations", "0", "greater than or equal to 1"),
        ("max_content", "65537", "less than or equal to 65536"),
        ("shards", "0", "greater than or equal to 1"),
        ("on_full", "explode", "'displace' or 'refuse'"),
        ("ack", "hope", "'memory', 'fsync' or 'replica'"),
        ("appendfsync", "no", "'everysec' or 'always'"),
        ("bus", "a b", "'a b' is not a bus name"),
        ("source", "-", "'-' is not a valid source"),
        (
            "auto_archive_resolved",
            "perhaps",
            "'perhaps' is not valid here; it should be a valid boolean, true or false",
        ),
        ("default_expiration", "soon", "'soon' is not valid here; use a positive duration"),
        ("default_expiration", "0", "use a positive duration"),
        ("sweep_interval", "never", "use a positive, finite duration"),
        ("log_level", "loud", "'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_an_invalid_value_names_where_it_was_set(name, value, says, write, monkeypatch):
    file = write(f"# a comment\n{name}: '{value}'\n")
    refusal = InvalidSource if name == "source" else SettingsError
    with pytest.raises(refusal) as from_file:
        load_settings(file)
    with pytest.raises(refusal) as from_caller:
        load_settings(**{name: value})
    monkeypatch.setenv(f"SCRATCHBUS_{name.upper()}", value)
    with pytest.raises(refusal) as from_environment:
        load_settings()
    assert str(from_file.value).startswith(f"{file}:2:1: {name}: ")
    assert str(from_caller.value).startswith(f"{name}: ")
    assert str(from_environment.value).startswith(f"SCRATCHBUS_{name.upper()}: ")
    for raised in (from_file, from_caller, from_environment):
        assert says in str(raised.value)
        assert "\n" not in str(raised.value)
        assert "unable to" not in str(raised.value)


def test_true_is_not_a_number(write):
    with pytest.raises(SettingsError, match="replicas: True is not valid here; write a whole number"):
        load_settings(write("replicas: true\n"))


def test_a_number_is_not_a_path(write):
    with pytest.raises(SettingsError, match="home: 5 is not valid here; it should be a path"):
        load_settings(write("home: 5\n"))


def test_an_unknown_setting_in_the_file_lists_the_allowed_ones(write):
    with pytest.raises(SettingsFileError, match="unknown setting 'max_observation'") as raised:
        load_settings(write("bus: b\nmax_observation: 5\n"))
    assert raised.value.line == 2
    assert raised.value.allowed == sorted(Settings.model_fields)


def test_an_unknown_setting_argument_lists_the_allowed_ones():
    with pytest.raises(SettingsError, match=r"max_observation: unknown setting; use one of: ack, .*, url"):
        load_settings(max_observation=5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bus: [a]\n", ":1:1: bus: must be a single value"),
        ("bus: a\nbus: b\n", ":2:1: bus: is given twice, first in line 1"),
        ("- bus\n", "is not a mapping"),
        ("bus: {\n", "not YAML"),
    ],
)
def test_a_malformed_settings_file_is_refused(text, says, write):
    with pytest.raises(SettingsFileError, match=re.escape(says)):
        load_settings(write(text))


def test_a_missing_settings_file_names_its_origin(tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match="No such file or directory; check the path"):
        load_settings(tmp_path / "gone.yaml")
    monkeypatch.setenv("SCRATCHBUS_CONFIG", str(tmp_path / "gone.yaml"))
    with pytest.raises(SettingsError, match=r"^SCRATCHBUS_CONFIG: "):
        load_settings()


def test_a_settings_file_that_is_not_utf_8_is_refused(tmp_path):
    file = tmp_path / "scratchbus.yaml"
    file.write_bytes(b"bus: \xff\n")
    with pytest.raises(SettingsError, match="not UTF-8"):
        load_settings(file)


def test_an_empty_archive_url_names_no_archive(write):
    assert load_settings(write('archive_url: ""\n')).archive_url == ""
    with Bus.connect(f"memory://{token_hex(6)}", source="t", archive_url="") as bus:
        assert bus.core.log.archive is None


def test_a_home_directory_that_is_not_known_is_refused(write, monkeypatch):
    with pytest.raises(
        SettingsError, match=r"^config: '~no\.one/settings\.yaml' has no known home directory; write the"
    ):
        load_settings("~no.one/settings.yaml")
    for name in ("home", "archive_url"):
        with pytest.raises(SettingsError, match=rf"yaml:1:1: {name}: '~no\.one/x' has no known home directory"):
            load_settings(write(f"{name}: ~no.one/x\n"))
    monkeypatch.setenv("SCRATCHBUS_HOME", "~no.one/x")
    with pytest.raises(SettingsError, match=r"^SCRATCHBUS_HOME: '~no\.one/x' has no known home directory"):
        load_settings()
