"""Files that are dropped on the list of chats: their chats are imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.ui.chat.transfers import ImportDialog
from tests.ui.chat.test_attachments import drop, mime
from tests.ui.shell.running import WAIT_MS, Running, button

CHATS = Path(__file__).parents[2] / "data" / "imports" / "openai.jsonl"


@pytest.mark.usefixtures("guide_pair")
def test_their_chats_are_imported(running: Running) -> None:
    chat_list = running.window.chat_list
    assert chat_list.target.accessibleName() == "Drop files to import their chats"
    drop(chat_list, mime(str(CHATS)))
    (dialog,) = running.window.findChildren(ImportDialog)
    press = button(dialog, "Import")
    running.qtbot.waitUntil(press.isEnabled, timeout=WAIT_MS)
    press.click()
    running.qtbot.waitUntil(lambda: len(running.titles()) > 1, timeout=WAIT_MS)
    dialog.reject()
