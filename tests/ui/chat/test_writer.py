"""What is stored is written beside the window and in order: an answer while it is being written, presets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from app.chats.presets import Presets
from app.chats.settings import ChatSettings
from app.ui.chat import writer
from app.ui.chat.model import ChatState
from app.ui.chat.writer import ChatWriter, StoredPresets
from app.ui.notices import NoticeList
from tests.ui.parts import WAIT_MS, Rig
from tests.ui.stalled import Stalled

BRIEF = ChatSettings(system_prompt="Be brief.")


class Idle:
    """A store that has done at once what it is asked for, and counts the answers."""

    def __init__(self) -> None:
        self.answers = 0

    def ask(self, function: Callable[..., object], done: Callable[..., None], _failed: object) -> None:
        done(function(self))

    def update_answer(self, *_values: object) -> None:
        self.answers += 1


@pytest.mark.parametrize(
    ("tokens", "intervals"), [(0, 0), (1, 1), (4999, 1), (5000, 2), (10_000, 3), (20_000, 5), (40_000, 5)]
)
def test_a_long_answer_is_saved_less_often_and_nothing_after_its_end(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, tokens: int, intervals: int
) -> None:
    monkeypatch.setattr(writer, "SAVE_INTERVAL_MS", 0)
    live = SimpleNamespace(
        calls=[],
        attachments=[],
        message=SimpleNamespace(id="a"),
        pieces=[None] * tokens,
        stored_tokens=list,
        text=str,
        packed=list,
        thinking=str,
    )
    store = Idle()
    made = ChatWriter(store)  # type: ignore[arg-type]
    due: list[int] = []
    made._timer.timeout.connect(lambda: due.append(store.answers))
    made.begin_answer(live)  # type: ignore[arg-type]
    qtbot.waitUntil(lambda: len(due) >= 10, timeout=WAIT_MS)
    made.end_answer()
    assert due == [turn // intervals if intervals else 0 for turn in range(1, len(due) + 1)]
    assert not made._timer.isActive()


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
    presets, names = stored.presets, list[str]()
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
    stored.change(lambda presets: presets.delete("gone"))
    qtbot.waitUntil(lambda: "presets" in notice_list.notices(), timeout=WAIT_MS)
    assert notice_list.notices()["presets"].text == "There is no longer a preset named “gone”."
    stored.change(lambda presets: presets.save("Last", BRIEF))
    stored.close()
    assert Presets(tmp_path / "presets.json").names() == ["Brief", "Brief copy", "Last"]


def test_a_file_that_cannot_be_used_is_told(notice_list: NoticeList, tmp_path: Path) -> None:
    (tmp_path / "presets.json").write_text("{", encoding="utf-8")
    stored_in(tmp_path, notice_list).close()
    assert notice_list.notices()["presets"].text.startswith(
        "The presets couldn't be read. The file has been renamed to "
    )


def test_what_is_written_is_stored_before_the_end(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SAVE_INTERVAL_MS", 10)
    rig = Rig(qtbot, tmp_path, "endless")
    rig.load()
    rig.begin_answer("Go on")
    message_id = rig.model.messages[-1].id

    def stored_text() -> str:
        return next(one.text for one in rig.stored(lambda store: store.branch(rig.model.id)) if one.id == message_id)

    qtbot.waitUntil(lambda: stored_text() == "Hello there", timeout=WAIT_MS)
    assert rig.model.state is ChatState.ANSWERING
    rig.close()
