"""The user's servers on disk, and their secrets, which aren't there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from app.system import KnownError
from app.tools.entries import FILE_NAME, MISSING, ServerEntries, command_line, resolved
from app.tools.messages import ServerEntry
from tests.support.keyrings import MemoryKeyring, in_use

GITHUB = ServerEntry(
    name="github",
    command="npx",
    args=["-y", "@modelcontextprotocol/server-github"],
    env={"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_abcdefghijklmnop", "LANG": "C"},
)
REMOTE = ServerEntry(
    name="remote", url="https://example.org/mcp", headers={"Authorization": "Bearer very secret", "X-Team": "a"}
)


@pytest.fixture
def no_keyring() -> Iterator[None]:
    from keyring.backends.fail import Keyring

    with in_use(Keyring()):  # type: ignore[no-untyped-call]
        yield


def test_servers_are_there_next_time_with_their_secrets(tmp_path: Path, kept: MemoryKeyring) -> None:
    entries = ServerEntries(tmp_path)
    assert entries.all() == {}
    assert entries.put(GITHUB) and entries.put(REMOTE)
    assert ServerEntries(tmp_path).all() == {"github": GITHUB, "remote": REMOTE}
    text = (tmp_path / FILE_NAME).read_text()
    assert "ghp_" not in text and "very secret" not in text and '"LANG": "C"' in text
    assert sorted(kept.entries.values()) == ["Bearer very secret", "ghp_abcdefghijklmnop"]


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        ("OPENAI_API_KEY", "x", True),
        ("BRAVE_APIKEY", "x", True),
        ("DB_PASSWORD", "x", True),
        ("SLACK_BOT", "xoxb-1234567890-abcdef", True),
        ("DATABASE_URL", "postgres://me:word@localhost/db", True),
        ("DATABASE_URL", "postgres://localhost/db", False),
        ("OPENAI_API_KEY", "${env:OPENAI_API_KEY}", False),
        ("OPENAI_API_KEY", "", False),
        ("PATH", "/usr/bin", False),
        ("MODE", "fast", False),
    ],
)
def test_what_looks_like_a_secret(tmp_path: Path, kept: MemoryKeyring, name: str, value: str, is_secret: bool) -> None:
    entry = ServerEntry(name="one", command="x", env={name: value})
    ServerEntries(tmp_path).put(entry)
    assert bool(kept.entries) is is_secret
    assert ServerEntries(tmp_path).all() == {"one": entry}


def test_secrets_go_with_their_server(tmp_path: Path, kept: MemoryKeyring) -> None:
    entries = ServerEntries(tmp_path)
    entries.put(GITHUB)
    entries.keep_login("github", '{"token": "x y"}')
    assert ServerEntries(tmp_path).login("github") == '{"token": "x y"}'
    entries.remove("github")
    assert not kept.entries and not ServerEntries(tmp_path).all() and not entries.login("github")


def test_a_renamed_server_keeps_its_secrets(tmp_path: Path, kept: MemoryKeyring) -> None:
    entries = ServerEntries(tmp_path)
    entries.put(GITHUB)
    renamed = msgspec.structs.replace(GITHUB, name="hub")
    entries.put(renamed, instead_of="github")
    assert ServerEntries(tmp_path).all() == {"hub": renamed}
    assert len(kept.entries) == 1


def test_without_a_keyring_secrets_last_until_the_end(tmp_path: Path, no_keyring: None) -> None:
    entries = ServerEntries(tmp_path)
    assert not entries.put(GITHUB), "the user is told"
    assert entries.all() == {"github": GITHUB}
    later = ServerEntries(tmp_path)
    (entry,) = later.all().values()
    assert entry.env == {"GITHUB_PERSONAL_ACCESS_TOKEN": MISSING, "LANG": "C"}
    with pytest.raises(KnownError, match="enter the secret again"):
        resolved(entry)
    later.put(msgspec.structs.replace(entry, off=["x"]))
    assert "ghp_" not in (tmp_path / FILE_NAME).read_text()


def test_a_keyring_that_is_locked_loses_nothing(tmp_path: Path, kept: MemoryKeyring) -> None:
    """What couldn't be read is still there when the entry has been changed in the meantime."""
    ServerEntries(tmp_path).put(GITHUB)
    secrets, kept.entries = kept.entries, {}
    entries = ServerEntries(tmp_path)
    entries.put(msgspec.structs.replace(entries.all()["github"], timeout_seconds=5))
    kept.entries = secrets
    assert ServerEntries(tmp_path).all() == {"github": msgspec.structs.replace(GITHUB, timeout_seconds=5)}


def test_a_secret_may_have_several_lines(tmp_path: Path, kept: MemoryKeyring) -> None:
    entry = ServerEntry(name="one", command="x", env={"PRIVATE_KEY": "-----BEGIN\nabc ü\n-----END"})
    ServerEntries(tmp_path).put(entry)
    assert ServerEntries(tmp_path).all() == {"one": entry}


@pytest.mark.allow_logs
@pytest.mark.parametrize(
    "content", ["", '{"version": 1, "servers": [{"name": "a", "comm', "[1]", '{"version": 1, "servers": {}}']
)
def test_a_half_written_file_is_kept_aside_and_counts_as_empty(
    tmp_path: Path, content: str, kept: MemoryKeyring
) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    entries = ServerEntries(tmp_path)
    assert entries.all() == {}
    entries.put(GITHUB)
    assert ServerEntries(tmp_path).all() == {"github": GITHUB}


def test_rows_of_another_version_stay(tmp_path: Path, kept: MemoryKeyring) -> None:
    (tmp_path / FILE_NAME).write_text(
        '{"version": 1, "servers": [{"name": ""}, {"name": "a", "command": "b", "new": 1}]}'
    )
    entries = ServerEntries(tmp_path)
    assert entries.all() == {"a": ServerEntry(name="a", command="b")}
    entries.put(GITHUB)
    assert '"name": ""' in (tmp_path / FILE_NAME).read_text()


def test_variables_are_replaced_when_it_is_started() -> None:
    entry = ServerEntry(
        name="x",
        command="${HOME_OF}/bin/x",
        args=["${env:NAME}", "${NONE:-default}", "$NAME", "{NAME}"],
        env={"TOKEN": "${env:NAME}"},
    )
    started = resolved(entry, {"NAME": "value ${env:NAME}", "HOME_OF": "/opt"})
    assert (started.command, started.args) == ("/opt/bin/x", ["value ${env:NAME}", "default", "$NAME", "{NAME}"])
    assert started.env == {"TOKEN": "value ${env:NAME}"}
    with pytest.raises(KnownError, match="MISSING_ONE"):
        resolved(ServerEntry(name="x", command="${env:MISSING_ONE}"), {})
    with pytest.raises(KnownError, match="input:key"):
        resolved(ServerEntry(name="x", command="a", args=["${input:key}"]), {"key": "not this"})
    assert resolved(ServerEntry(name="x", command="${userHome}/x"), {}).command == f"{Path.home()}/x"


def test_a_command_is_shown_so_that_nothing_is_hidden() -> None:
    entry = ServerEntry(
        name="x", command="uvx", args=["a b", "", "it's", "--flag=1", "\u202etxt.exe", "a\nb", "$(rm -rf)"]
    )
    assert command_line(entry) == (r"""uvx 'a b' '' 'it's' --flag=1 '\u202etxt.exe' 'a\nb' '$(rm -rf)'""")


def test_letters_without_a_shape_are_shown_too() -> None:
    entry = ServerEntry(name="x", command="uvx", args=["a\u3164b", "\u2800", "e\ufe0f", "Übung", "e\u0301"])
    shown = command_line(entry)
    assert shown.startswith(r"uvx 'a\u3164b' '\u2800' 'e\ufe0f' ") and shown.endswith("'Übung' 'e\u0301'")
