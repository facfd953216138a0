"""What is allowed stays allowed, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from app.storage.json_file import NotSavedError
from app.tools.messages import ServerTool
from app.tools.offered import OfferedTool, offered_tools
from app.tools.permissions import FILE_NAME, Permissions


def tool(server: str = "time", name: str = "now", description: str = "") -> OfferedTool:
    (one,) = offered_tools({server: [ServerTool(name=name, description=description)]})
    return one


def test_nothing_is_allowed_at_first(tmp_path: Path) -> None:
    permissions = Permissions(tmp_path)
    assert not permissions.is_allowed(tool(), "chat") and not permissions.has_changed(tool())
    assert not (tmp_path / FILE_NAME).exists()


def test_what_is_always_allowed_is_so_next_time_and_in_every_chat(tmp_path: Path) -> None:
    Permissions(tmp_path).allow(tool())
    permissions = Permissions(tmp_path)
    assert permissions.is_allowed(tool(), "chat") and permissions.is_allowed(tool(), "")
    assert not permissions.is_allowed(tool("other"), "chat") and not permissions.is_allowed(tool(name="then"), "chat")
    assert [(one.server, one.tool) for one in permissions.all().values()] == [("time", "now")]


def test_what_is_allowed_in_a_chat_is_so_only_there_and_now(tmp_path: Path) -> None:
    permissions = Permissions(tmp_path)
    permissions.allow(tool(), "chat")
    assert permissions.is_allowed(tool(), "chat")
    assert not permissions.is_allowed(tool(), "other") and not permissions.is_allowed(tool(), "")
    assert not Permissions(tmp_path).is_allowed(tool(), "chat")


@pytest.mark.parametrize("chat", ["", "chat"])
def test_a_tool_that_has_changed_is_not_allowed(tmp_path: Path, chat: str) -> None:
    permissions = Permissions(tmp_path)
    permissions.allow(tool(), chat)
    changed = tool(description="Now it deletes files.")
    assert not permissions.is_allowed(changed, "chat") and permissions.has_changed(changed)
    assert not permissions.has_changed(tool())
    permissions.allow(changed)
    assert permissions.is_allowed(changed, "chat") and not permissions.has_changed(changed)


def test_a_server_and_a_tool_with_one_key_are_not_confused(tmp_path: Path) -> None:
    """``a.b`` + ``c`` and ``a`` + ``b.c`` have the same key, but not the same fingerprint."""
    permissions = Permissions(tmp_path)
    permissions.allow(tool("a.b", "c"))
    assert tool("a", "b.c").key == tool("a.b", "c").key
    assert not permissions.is_allowed(tool("a", "b.c"), "chat")


def test_withdrawing_counts_everywhere_and_next_time(tmp_path: Path) -> None:
    permissions = Permissions(tmp_path)
    permissions.allow(tool())
    permissions.allow(tool(), "chat")
    permissions.withdraw(tool().key)
    for one in (permissions, Permissions(tmp_path)):
        assert not one.is_allowed(tool(), "chat") and not one.all()


@pytest.mark.allow_logs
@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"version": 1, "allowed": 3}', '{"version": 1, "allowed": {"time.now": true}}']
)
def test_a_broken_file_allows_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    permissions = Permissions(tmp_path)
    assert not permissions.all()
    permissions.allow(tool())
    assert Permissions(tmp_path).is_allowed(tool(), "chat")


@pytest.mark.allow_logs
def test_it_counts_until_the_end_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    failed: list[NotSavedError] = []

    def write(change: Callable[[], None]) -> None:
        try:
            change()
        except NotSavedError as error:
            failed.append(error)

    permissions = Permissions(tmp_path / "file", write)
    permissions.allow(tool())
    assert permissions.is_allowed(tool(), "chat") and len(failed) == 1


def test_a_row_survives_as_it_is(tmp_path: Path) -> None:
    Permissions(tmp_path).allow(tool("na\u202eme", "to\nol"))
    (row,) = Permissions(tmp_path).all().values()
    assert msgspec.structs.astuple(row)[:2] == ("na\u202eme", "to\nol")
