"""What people paste: files of other apps, commands, addresses; broken ones and hostile ones."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from app.tools.config_files import MOST_TEXT, FoundServers, find_servers, free_name
from app.tools.entries import MOST_SERVERS, resolved, with_inputs
from app.tools.known import find_program, known_servers
from app.tools.messages import ServerEntry

DATA = Path(__file__).parents[1] / "data" / "mcp"


def found_in(name: str) -> FoundServers:
    return find_servers((DATA / name).read_text(encoding="utf-8"))


def test_claude_desktop() -> None:
    found = found_in("claude_desktop_config.json")
    assert not found.problems and not found.inputs
    files, github = found.entries
    folders = ["/Users/me/Desktop", "/Users/me/Down loads"]
    package = "@modelcontextprotocol/server-filesystem"
    assert files == ServerEntry(name="filesystem", command="npx", args=["-y", package, *folders])
    assert (github.name, github.args[-1]) == ("github", "ghcr.io/github/github-mcp-server")
    assert github.env == {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_0123456789abcdefghij"}


def test_lm_studio_has_addresses_and_milliseconds() -> None:
    remote, time = found_in("lm_studio_mcp.json").entries
    assert (remote.url, remote.timeout_seconds) == ("https://huggingface.co/mcp", 90.0)
    assert remote.headers == {"Authorization": "Bearer hf_0123456789abcdefghij"}
    assert (time.timeout_seconds, time.is_on) == (30.0, False)


def test_cursor_has_comments_commas_and_variables() -> None:
    found = found_in("cursor_mcp.json")
    postgres, linear, project = found.entries
    assert (postgres.command, postgres.args) == (
        "${userHome}/bin/mcp-postgres",
        ["--port", "5432", "--readonly", "true"],
    )
    assert postgres.env == {"DATABASE_URL": "${env:DATABASE_URL}", "EMPTY": ""}
    assert linear.url == "https://mcp.linear.app/mcp"
    assert not project.is_on and postgres.is_on
    assert [text.split("”")[0] for text in found.problems] == ["“postgres", "“project"]


def test_vs_code_has_inputs() -> None:
    found = found_in("vscode_mcp.json")
    perplexity, fetch = found.entries
    assert found.inputs == {"perplexity-key": "Perplexity API Key", "other": "other"}
    assert perplexity.args[-2:] == ["https://example.org//x", "/* no comment */"]
    filled = with_inputs(perplexity, {"perplexity-key": "pplx ${env:X}"})
    assert filled.env == {"PERPLEXITY_API_KEY": "pplx ${env:X}"}
    assert fetch.headers == {"X-Key": "${input:other}"}
    assert found.problems == ["“old” wasn't added: it uses SSE, an older transport that Slipstream doesn't support."]


SERVER = {"command": "uvx", "args": ["mcp-server-time"]}
TIME = [ServerEntry(name="time", command="uvx", args=["mcp-server-time"])]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"mcpServers": {"time": SERVER}}),
        "\ufeff" + json.dumps({"servers": {"time": SERVER}}),
        json.dumps({"mcp": {"servers": {"time": SERVER}}}),
        json.dumps({"mcp": {"time": {"type": "local", "command": ["uvx", "mcp-server-time"]}}}),
        json.dumps({"context_servers": {"time": {"command": {"path": "uvx", "args": ["mcp-server-time"]}}}}),
        json.dumps({"time": SERVER}),
        '"time": ' + json.dumps(SERVER) + ",",
        '"mcpServers": ' + json.dumps({"time": SERVER}),
        json.dumps({"name": "time", **SERVER}),
        json.dumps({"mcpServers": {"time": {"command": "uvx mcp-server-time"}}}),
        '{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time",],},},}',
    ],
)
def test_the_forms_that_people_paste(text: str) -> None:
    found = find_servers(text)
    assert (found.entries, found.problems) == (TIME, [])


@pytest.mark.parametrize(
    ("line", "name", "command", "args"),
    [
        ("uvx mcp-server-time", "mcp-server-time", "uvx", ["mcp-server-time"]),
        ("$ npx -y @upstash/context7-mcp@latest\n", "context7-mcp", "npx", ["-y", "@upstash/context7-mcp@latest"]),
        ("npx -y \\\n  pkg --x 'a b'", "pkg", "npx", ["-y", "pkg", "--x", "a b"]),
        ("/opt/my server/run --x", "my", "/opt/my", ["server/run", "--x"]),
        ("'/opt/my server/run' --x", "run", "/opt/my server/run", ["--x"]),
        ("it's broken", "it's", "it's", ["broken"]),
        ("python -m my_server", "my_server", "python", ["-m", "my_server"]),
    ],
)
@pytest.mark.skipif("sys.platform == 'win32'", reason="quotation marks are others there")
def test_a_command(line: str, name: str, command: str, args: list[str]) -> None:
    (entry,) = find_servers(line).entries
    assert (entry.name, entry.command, entry.args) == (name, command, args)


def test_an_address() -> None:
    (entry,) = find_servers(" https://me:secret@example.org:8080/mcp?x=1 ").entries
    assert entry == ServerEntry(name="example-org", url="https://me:secret@example.org:8080/mcp?x=1")


def test_several_lines() -> None:
    found = find_servers("uvx a\n\n# a comment\nhttps://b.example/mcp\nuvx a")
    assert [entry.name for entry in found.entries] == ["a", "b-example", "a-2"]


def test_a_path_with_spaces_is_not_split() -> None:
    text = json.dumps({"mcpServers": {"x": {"command": "C:\\Program Files\\nodejs\\npx.cmd", "args": ["a"]}}})
    assert find_servers(text).entries[0].command == "C:\\Program Files\\nodejs\\npx.cmd"
    text = json.dumps({"mcpServers": {"x": {"command": "/opt/my app/server"}}})
    assert find_servers(text).entries[0].command == "/opt/my app/server"


def test_names_are_made_usable_and_unique() -> None:
    text = json.dumps({"mcpServers": dict.fromkeys(("a.b", "a b", "a\u202eb", " ", "x" * 200, "時間"), SERVER)})
    names = [entry.name for entry in find_servers(text, taken=["a-b"]).entries]
    assert names == ["a-b-2", "a-b-3", "a-b-4", "mcp-server-time", "x" * 56, "時間"]
    assert free_name("..", []) == "-"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (3, "it isn't an object"),
        ({}, "neither a command nor an address"),
        ({"command": "x", "url": "https://x"}, "both a command and an address"),
        ({"url": "file:///etc/passwd"}, "doesn't begin with http"),
        ({"url": "https://"}, "doesn't begin with http"),
        ({"command": "x", "args": ["a\0b"]}, "a character that isn't allowed in a command"),
        ({"command": []}, "neither a command nor an address"),
        ({"command": 3.5, "url": 7, "transport": "sse"}, "SSE"),
    ],
)
def test_what_can_not_be_used_is_told_and_the_rest_is_read(raw: object, why: str) -> None:
    found = find_servers(json.dumps({"mcpServers": {"bad\u202e": raw, "time": SERVER}}))
    assert found.entries == TIME
    (problem,) = found.problems
    assert problem.startswith("“bad\\u202e” wasn't added: ") and why in problem


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-',
        '{"mcpServers": ',
        "{",
        '"',
        "/* never closed",
        "{}",
        '{"a": 1}',
        '{"mcpServers": []}',
        '{"mcpServers": {"a": NaN}}',
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"x": ' + "9" * 5000 + "}",
        "x" * (MOST_TEXT + 1),
    ],
)
def test_what_is_not_a_list_of_servers_is_told(text: str) -> None:
    found = find_servers(text)
    if not text.startswith("["):
        assert not found.entries and len(found.problems) == 1


def test_nothing_is_nothing() -> None:
    assert find_servers(" \n") == FoundServers()


@pytest.mark.parametrize(
    "text",
    [
        '"\\"' * 300_000,
        "{/*" + "/*" * 400_000,
        '{"' + "," * 900_000,
        "{//" + "\n//" * 300_000,
        "{" + "," * 1_000_000,
        "," * 1_000_000,
        "a\n" * 500_000,
        '{"x": {"command": "' + "a " * 500_000 + '"}}',
    ],
    ids=range(8),
)
def test_a_hostile_text_takes_no_time(text: str) -> None:
    """It would take hours if reading it were quadratic; the test's own limit ends it."""
    find_servers(text)


def test_values_of_the_wrong_type_have_their_defaults() -> None:
    odd = {
        "command": "x", "args": [None, {}, "a", 1], "env": ["a"], "headers": 3, "cwd": [], "timeout": "soon",
        "disabled": 0, "disabledTools": ["a", 3],
    }  # fmt: skip
    (entry,) = find_servers(json.dumps({"x": odd})).entries
    assert entry == ServerEntry(name="x", command="x", args=["a", "1"], off=["a"])
    for timeout in (-1, 0, True, 1e400):
        (entry,) = find_servers(json.dumps({"x": {"command": "x", "timeout": timeout}})).entries
        assert entry.timeout_seconds == 60.0
    (entry,) = find_servers('{"x": {"command": "x", "timeout": 99999999999}}').entries
    assert entry.timeout_seconds == 86_400.0


def test_not_more_servers_than_there_may_be() -> None:
    found = find_servers(json.dumps({"mcpServers": {str(number): SERVER for number in range(MOST_SERVERS + 1)}}))
    assert len(found.entries) == MOST_SERVERS and len(found.problems) == 1


def test_known_servers_can_be_added() -> None:
    known = known_servers()
    assert [one.title for one in known] == ["Time", "Web pages", "Files", "Git", "Memory", "SQLite"]
    for one in known:
        found = find_servers(json.dumps(one.config))
        assert len(found.entries) == 1 and not found.problems
        assert found.entries[0].command == one.program in ("uvx", "npx")


def test_a_program_is_found_where_only_a_terminal_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".local" / "bin"
    folder.mkdir(parents=True)
    (folder / "some-mcp-server").touch(mode=0o755)
    assert find_program("some-mcp-server", path="") == folder / "some-mcp-server"
    assert find_program("some-mcp-server", path=str(folder)) == Path("some-mcp-server")
    assert find_program(str(folder / "some-mcp-server")) == folder / "some-mcp-server"
    assert find_program("no-such-mcp-server") is None and find_program("") is None
    assert find_program(str(tmp_path / "some-mcp-server")) is None
    for version in ("v9.1.0", "v22.14.0", "v8.0.0"):
        (node := tmp_path / ".nvm" / "versions" / "node" / version / "bin").mkdir(parents=True)
        (node / "some-npx").touch(mode=0o755)
    assert (
        find_program("some-npx", path="") == tmp_path / ".nvm" / "versions" / "node" / "v22.14.0" / "bin" / "some-npx"
    )


def test_its_folder_is_in_the_path_of_a_server(tmp_path: Path) -> None:
    """npx needs node, which is in the same folder."""
    (tmp_path / "npx").touch(mode=0o755)
    entry = resolved(ServerEntry(name="x", command=str(tmp_path / "npx")), {"PATH": "/usr/bin"})
    assert entry.env == {"PATH": f"{tmp_path}{os.pathsep}/usr/bin"}
    named = resolved(ServerEntry(name="x", command="npx"), {"PATH": str(tmp_path)})
    assert (named.command, named.env) == ("npx", {})
    own = resolved(ServerEntry(name="x", command=str(tmp_path / "npx"), env={"PATH": "/own"}), {"PATH": "/usr/bin"})
    assert own.env == {"PATH": "/own"}
