"""Presets are changed beside the window, one change after the other; what goes wrong is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from app.chats.presets import Presets
from app.chats.settings import ChatSettings
from app.ui.chat.stored_presets import StoredPresets
from app.ui.notices import NoticeList
from tests.ui.stalled import Stalled

WAIT_MS = 20_000
BRIEF = ChatSettings(system_prompt="Be brief.")


@pytest.fixture
def notice_list(qtbot: QtBot) -> Iterator[NoticeList]:
    owner = QObject()
    yield NoticeList(owner)
    owner.deleteLater()


def stored_in(folder: Path, notice_list: NoticeList) -> StoredPresets:
    return StoredPresets(Presets(folder / "presets.json"), notice_list, notice_list.parent())


def test_a_disk_that_hangs_does_not_keep_the_window_and_all_is_written_in_the_end(
    qtbot: QtBot, notice_list: NoticeList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = stored_in(tmp_path, notice_list)
    presets, names, told = stored.presets, list[str](), list[str]()
    with monkeypatch.context() as patch:
        stalled = Stalled(patch)
        stalled.drive(tmp_path)
        stalled.syncing()
        stored.change(lambda presets: presets.save("Brief", BRIEF), names.append)
        stored.change(lambda presets: presets.duplicate("brief"), names.append)
        qtbot.waitUntil(stalled.reached.is_set, timeout=WAIT_MS)
        # All that is shown comes from memory.
        assert (presets.names(), presets.get("Brief"), presets.default_for("x")) == ([], None, ChatSettings())
        stalled.release()
        qtbot.waitUntil(lambda: len(names) == 2, timeout=WAIT_MS)
        assert stalled.in_window == []
    assert names == presets.names() == ["Brief", "Brief copy"]
    with qtbot.waitSignal(stored.changed, timeout=WAIT_MS):
        stored.change(lambda presets: presets.delete("gone"), failed=lambda error: told.append(str(error)))
    qtbot.waitUntil(lambda: told == ["There is no longer a preset named “gone”."], timeout=WAIT_MS)
    assert notice_list.notices() == {}
    stored.change(lambda presets: presets.save("Last", BRIEF))
    stored.close()
    assert Presets(tmp_path / "presets.json").names() == ["Brief", "Brief copy", "Last"]


def test_a_file_that_cannot_be_used_is_told(notice_list: NoticeList, tmp_path: Path) -> None:
    (tmp_path / "presets.json").write_text("{", encoding="utf-8")
    stored_in(tmp_path, notice_list).close()
    assert notice_list.notices()["presets"].text.startswith(
        "The presets couldn't be read. The file has been renamed to "
    )
