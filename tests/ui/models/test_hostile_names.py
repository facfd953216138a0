"""What files say of themselves is shown in labels, tooltips and notices, and turns no text around in them."""

from __future__ import annotations

import sys
import unicodedata
from datetime import date
from pathlib import Path

import pytest
from PySide6.QtCore import QAbstractListModel, QModelIndex, Qt
from PySide6.QtWidgets import QAbstractItemView, QLabel, QTreeWidget, QWidget
from pytestqt.qtbot import QtBot

from app.chats.model import Chat
from app.protocol.events import ModelInfo, PairLoaded
from app.settings import Pair, Settings
from app.ui import notices
from app.ui.chat.chat_list import ChatList
from app.ui.engine import pair_names
from app.ui.engine.pair_names import PairFiles
from app.ui.models.fit import NO_TARGET, READING
from app.ui.models.open_dialog import OpenModelsDialog
from app.ui.shell.all_actions import all_actions
from app.ui.shell.top_bar import UndoBar
from tests.support.gguf_files import make_model
from tests.support.library_parts import small_model
from tests.ui.models.windows import WAIT_MS, Windows

HOSTILE = "\x1b[2J\u202egnp.\u2066\u200b\u2028\x85"
posix = pytest.mark.skipif(sys.platform == "win32", reason="names that Windows does not allow")


def obeyed(text: str) -> list[str]:
    return [one for one in text if one not in "\n\t" and unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def shown_in(widget: QWidget) -> list[str]:
    """All texts, tooltips and titles of a window, those of lists too."""
    texts = [widget.windowTitle()]
    for one in [widget, *widget.findChildren(QWidget)]:
        texts += [one.toolTip(), one.accessibleName()]
        if isinstance(one, QLabel):
            texts.append(one.text())
        if isinstance(one, QAbstractItemView) and one.model() is not None:
            model = one.model()
            columns = range(1 if isinstance(model, QAbstractListModel) else model.columnCount(QModelIndex()))
            rows = range(model.rowCount(QModelIndex()))
            cells = [model.index(row, column) for row in rows for column in columns]
            roles = (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole)
            texts += [str(cell.data(role) or "") for cell in cells for role in roles]
    return texts


def check(widget: QWidget) -> None:
    texts = shown_in(widget)
    assert any("\\u202e" in text for text in texts)
    assert [text for text in texts if obeyed(text)] == []


@posix
def test_the_library(windows: Windows) -> None:
    path = small_model(windows.models / f"of{HOSTILE}" / f"file{HOSTILE}.gguf", name=f"Name {HOSTILE}")
    (path.parent / f"broken{HOSTILE}.gguf").write_bytes(b"no")
    windows.scanned()
    tree = windows.window.findChild(QTreeWidget)
    assert tree is not None
    for row in range(tree.topLevelItemCount()):
        item = tree.topLevelItem(row)
        assert item is not None
        tree.setCurrentItem(item)
        check(windows.window)


@posix
@pytest.mark.parametrize("name", ["file", "broken", "gone"])
def test_the_open_dialog(qtbot: QtBot, tmp_path: Path, name: str) -> None:
    make_model(tmp_path / f"file{HOSTILE}.gguf", layers=1, width=32, name=f"Name {HOSTILE}", architecture=f"a{HOSTILE}")
    (tmp_path / f"broken{HOSTILE}.gguf").write_bytes(b"no")
    path = str(tmp_path / f"{name}{HOSTILE}.gguf")
    dialog = OpenModelsDialog(PairFiles(target=path), Settings(recent_pairs=[Pair(path)]))
    qtbot.addWidget(dialog)
    qtbot.waitUntil(lambda: dialog._check not in (NO_TARGET, READING), timeout=WAIT_MS)
    check(dialog)


def test_names_of_models() -> None:
    target = ModelInfo(path=f"/models/x{HOSTILE}.gguf", name=f"Big {HOSTILE}", quantization=HOSTILE)
    draft = ModelInfo(path=f"/models/y{HOSTILE}.gguf", name="")
    pair = PairLoaded(request=1, target=target, draft=draft, context_length=512)
    said = [pair_names.pair_title(pair), pair_names.pair_details(pair), pair_names.speaker(pair)]
    said.append(pair_names.recent_title(Pair(target.path, draft.path)))
    said.append(notices.load_failed(f"The template is broken: {HOSTILE}").text)
    assert all("\\u202e" in text for text in said)
    assert [text for text in said if obeyed(text)] == []


def test_titles_of_chats(qtbot: QtBot) -> None:
    chats = ChatList(all_actions())
    qtbot.addWidget(chats)
    chats.set_chats([Chat("1", f"Chat {HOSTILE}", 0.0, 0.0, None)], today=date(2026, 11, 22))
    check(chats)
    bar = UndoBar(all_actions())
    qtbot.addWidget(bar)
    bar.offer(f"Deleted “{HOSTILE}”")
    check(bar)
