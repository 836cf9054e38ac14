"""`setup` writes the configuration that starts the MCP server in a client, and changes nothing else."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from scratchbus.cli import main
from scratchbus.cli.hook import hook
from scratchbus.cli.setup import page_of
from scratchbus.daemon import INVALID_INPUT, USAGE


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "My project"
    directory.mkdir()
    return directory


def run_setup(project: Path, client: str, *options: str) -> None:
    assert main(["setup", client, "--directory", str(project), "--yes", *options]) == 0


@pytest.mark.parametrize(
    ("client", "file", "key"),
    [
        ("claude", ".mcp.json", "mcpServers"),
        ("cursor", ".cursor/mcp.json", "mcpServers"),
        ("vscode", ".vscode/mcp.json", "servers"),
    ],
)
def test_setup_writes_the_configuration_of_a_client(project: Path, client: str, file: str, key: str):
    run_setup(project, client)
    server = json.loads((project / file).read_text())[key]["scratchbus"]
    arguments = server["args"]
    assert arguments[0] == "mcp"
    page = arguments[arguments.index("--page") + 1]
    assert page.startswith("My-project-")
    assert arguments[arguments.index("--session") + 1] == page


def test_setup_takes_a_page_from_its_options_and_not_from_the_environment(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SCRATCHBUS_PAGE", "shell")
    for options, page in ([], page_of(project)), (["--page", "shared"], "shared"):
        run_setup(project, "cursor", *options)
        assert main([*options, "setup", "cursor", "--directory", str(project), "--yes"]) == 0
        arguments = json.loads((project / ".cursor/mcp.json").read_text())["mcpServers"]["scratchbus"]["args"]
        assert arguments[arguments.index("--page") + 1] == page


def test_hooks_and_server_get_the_same_scopes(project: Path):
    run_setup(project, "claude", "--knowledge", "ada,ada/shop", "--tools", "basic,facts")
    arguments = json.loads((project / ".mcp.json").read_text())["mcpServers"]["scratchbus"]["args"]
    assert arguments[-4:] == ["--knowledge", "ada,ada/shop", "--tools", "basic,facts"]
    hooks = json.loads((project / ".claude/settings.json").read_text())["hooks"]
    for ((each,),) in (found[0].values() for found in hooks.values()):
        assert "--knowledge ada,ada/shop" in each["command"]
        assert "--tools" not in each["command"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--tools", "basic,factz"], "tools: unknown group 'factz'"),
        (["--tools", "preferences"], "tools: the preferences tools need a scope"),
        (["--knowledge", "ada,my shop"], "scope: 'my shop' is not a name"),
        (["--agent", "\n"], "agent: "),
        (["--page", "a b"], "page: 'a b'"),
    ],
)
def test_setup_refuses_options_that_the_server_refuses(
    project: Path, capsys: pytest.CaptureFixture[str], options: list[str], why: str
):
    assert main(["setup", "claude", "--directory", str(project), "--yes", *options]) != 0
    assert why in capsys.readouterr().err
    assert not (project / ".mcp.json").exists()


def test_projects_with_the_same_name_get_different_pages(tmp_path: Path):
    pages = set()
    for parent in ("a", "b"):
        project = tmp_path / parent / "app"
        project.mkdir(parents=True)
        run_setup(project, "cursor")
        arguments = json.loads((project / ".cursor/mcp.json").read_text())["mcpServers"]["scratchbus"]["args"]
        pages.add(arguments[arguments.index("--page") + 1])
    assert len(pages) == 2


def test_setup_keeps_existing_entries_and_can_be_repeated(project: Path):
    (project / ".claude").mkdir()
    mine = {"matcher": "startup", "hooks": [{"type": "command", "command": "date"}]}
    (project / ".claude/settings.json").write_text(json.dumps({"model": "x", "hooks": {"SessionStart": [mine]}}))
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"other": {"command": "other"}}}))
    run_setup(project, "claude")
    run_setup(project, "claude", "--agent", "reviewer")
    servers = json.loads((project / ".mcp.json").read_text())["mcpServers"]
    settings = json.loads((project / ".claude/settings.json").read_text())
    assert set(servers) == {"other", "scratchbus"}
    assert settings["model"] == "x"
    first, second = settings["hooks"]["SessionStart"]
    assert first == mine
    assert " hook session-start --agent reviewer --page My-project-" in second["hooks"][0]["command"]


def test_setup_keeps_hooks_of_other_programs_that_name_scratchbus(project: Path):
    other = {"hooks": [{"type": "command", "command": "python /home/ada/scratchbus/lint.py"}]}
    file = project / ".claude/settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"hooks": {"Stop": [other]}}))
    for _ in range(2):
        run_setup(project, "claude")
        found = json.loads(file.read_text())["hooks"]["Stop"]
        assert (found[0], len(found)) == (other, 2)


def test_setup_keeps_hooks_that_were_added_beside_its_own(project: Path):
    run_setup(project, "claude")
    file = project / ".claude/settings.json"
    settings = json.loads(file.read_text())
    other = {"type": "command", "command": "date"}
    settings["hooks"]["Stop"][0]["hooks"].append(other)
    file.write_text(json.dumps(settings))
    run_setup(project, "claude")
    first, second = json.loads(file.read_text())["hooks"]["Stop"]
    assert first["hooks"] == [other]
    assert " hook stop " in second["hooks"][0]["command"]


def test_setup_configures_every_hook(project: Path):
    run_setup(project, "claude")
    hooks = json.loads((project / ".claude/settings.json").read_text())["hooks"]
    written = {event: each[0]["hooks"][0]["command"].split()[1:3] for event, each in hooks.items()}
    assert written == {
        "SessionStart": ["hook", "session-start"],
        "UserPromptSubmit": ["hook", "user-prompt"],
        "PreCompact": ["hook", "pre-compact"],
        "Stop": ["hook", "stop"],
    }
    assert {name for _, name in written.values()} == set(hook.commands)


def test_setup_shows_the_configuration_and_asks(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("click.confirm", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["setup", "cursor", "--directory", str(project)]) != 0
    assert '"mcpServers"' in capsys.readouterr().err
    assert not (project / ".cursor").exists()


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_setup_writes_nothing_without_confirmation(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: str
):
    monkeypatch.setattr("sys.stdin", StringIO(answer))
    assert main(["setup", "cursor", "--directory", str(project)]) == (0 if answer else USAGE)
    err = capsys.readouterr().err
    assert "internal error" not in err
    assert ("Nothing was written" in err) == bool(answer)
    assert ("no terminal to ask on; add --yes" in err) == (not answer)
    assert not (project / ".cursor").exists()


@pytest.mark.parametrize("is_option", [True, False])
def test_setup_writes_the_effective_url(project: Path, monkeypatch: pytest.MonkeyPatch, is_option: bool):
    url = "redis://elsewhere:6390"
    monkeypatch.setenv("SCRATCHBUS_URL", "redis://not-this:1" if is_option else url)
    for client in ("claude", "cursor", "vscode"):
        run_setup(project, client, *(["--url", url] if is_option else []))
    for file, key in ((".mcp.json", "mcpServers"), (".cursor/mcp.json", "mcpServers"), (".vscode/mcp.json", "servers")):
        server = json.loads((project / file).read_text())[key]["scratchbus"]
        assert server["env"] == {"SCRATCHBUS_URL": url}
    (hook,) = json.loads((project / ".claude/settings.json").read_text())["hooks"]["SessionStart"]
    assert hook["hooks"][0]["command"].endswith(f" --url {url}")


def test_setup_writes_the_directory_of_the_embedded_engine(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SCRATCHBUS_HOME", str(tmp_path / "my engine"))
    run_setup(project, "claude")
    url = f"embedded:{tmp_path.resolve()}/my engine"
    server = json.loads((project / ".mcp.json").read_text())["mcpServers"]["scratchbus"]
    assert server["env"] == {"SCRATCHBUS_URL": url}
    (hook,) = json.loads((project / ".claude/settings.json").read_text())["hooks"]["SessionStart"]
    assert hook["hooks"][0]["command"].endswith(f" --url '{url}'")


@pytest.mark.parametrize("is_option", [True, False])
def test_setup_writes_the_effective_bus(project: Path, monkeypatch: pytest.MonkeyPatch, is_option: bool):
    monkeypatch.setenv("SCRATCHBUS_BUS", "not-this" if is_option else "team")
    run_setup(project, "claude", *(["--bus", "team"] if is_option else []))
    server = json.loads((project / ".mcp.json").read_text())["mcpServers"]["scratchbus"]
    assert server["env"]["SCRATCHBUS_BUS"] == "team"
    (hook,) = json.loads((project / ".claude/settings.json").read_text())["hooks"]["SessionStart"]
    assert hook["hooks"][0]["command"].endswith(" --bus team")


def test_setup_does_not_change_a_file_that_is_not_json(project: Path, capsys: pytest.CaptureFixture[str]):
    (project / ".mcp.json").write_text("{// mine\n}")
    assert main(["setup", "claude", "--directory", str(project), "--yes"]) != 0
    assert "this is not JSON" in capsys.readouterr().err
    assert (project / ".mcp.json").read_text() == "{// mine\n}"
    assert not (project / ".claude").exists()


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        (".mcp.json", '{"mcpServers": [{"command": "mine"}]}', "the value of 'mcpServers' is not an object"),
        (".claude/settings.json", '{"hooks": "mine"}', "the value of 'hooks' is not an object"),
        (".claude/settings.json", '{"hooks": {"Stop": {"mine": 1}}}', "the value of 'Stop' is not a list"),
        (".mcp.json", "[" * 100_000, "this is not JSON"),
    ],
)
def test_setup_does_not_replace_values_of_another_type(
    project: Path, capsys: pytest.CaptureFixture[str], file: str, text: str, problem: str
):
    (project / ".claude").mkdir()
    (project / file).write_text(text)
    assert main(["setup", "claude", "--directory", str(project), "--yes"]) == INVALID_INPUT
    assert f"{project / file}: {problem}" in capsys.readouterr().err
    assert [path for path in (".mcp.json", ".claude/settings.json") if (project / path).exists()] == [file]
    assert (project / file).read_text() == text


def test_setup_names_a_file_that_it_cannot_write(project: Path, capsys: pytest.CaptureFixture[str]):
    (project / ".mcp.json").symlink_to(project / "missing" / "mcp.json")
    assert main(["setup", "claude", "--directory", str(project), "--yes"]) == INVALID_INPUT
    assert f"{project / '.mcp.json'}: cannot be written" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_whole_stays_as_it_is(project: Path):
    file = project / ".mcp.json"
    before = json.dumps({"mcpServers": {"other": {"command": "x" * 100}}})
    file.write_text(before)
    arguments = ["setup", "claude", "--directory", str(project), "--yes"]
    code = f"""
import resource, sys
from scratchbus.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
sys.exit(main({arguments!r}))
"""
    done = subprocess.run([sys.executable, "-Bc", code], capture_output=True, text=True, check=False)
    assert (done.returncode, "cannot be written: File too large" in done.stderr) == (INVALID_INPUT, True)
    assert (file.read_text(), [path.name for path in project.iterdir()]) == (before, [".mcp.json"])


def test_setup_keeps_the_mode_of_a_file_and_the_target_of_a_link(project: Path, tmp_path: Path):
    target = tmp_path / "settings.json"
    target.write_text("{}")
    target.chmod(0o640)
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").symlink_to(target)
    run_setup(project, "claude")
    assert (project / ".claude/settings.json").is_symlink()
    assert "hooks" in json.loads(target.read_text())
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_setup_keeps_texts_that_are_not_valid_unicode(project: Path):
    (project / ".mcp.json").write_text('{"theirs": "\\ud83d"}')
    run_setup(project, "claude")
    document = json.loads((project / ".mcp.json").read_text())
    assert (document["theirs"], "mcpServers" in document) == ("\ud83d", True)
