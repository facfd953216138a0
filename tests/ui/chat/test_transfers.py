"""Importing, exporting and printing from the window: the dialogs, with real files, a real store and a real helper;
formulas in a printed chat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QImage, QTextDocument
from PySide6.QtPrintSupport import QPrintDialog, QPrinter
from PySide6.QtWidgets import QFileDialog, QWidget
from pytestqt.qtbot import QtBot
from shiboken6 import delete

from app.chats.database import MEMORY
from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.helper import Helper
from app.helper.messages import RenderMarkdown
from app.ui.chat.transfers import ChatTransfers, ExportDialog, ImportDialog, Printing, _Document
from app.ui.chat.writer import StoredChats
from app.ui.notices import NoticeList
from tests.chats.formats.test_formats import DATA
from tests.chats.test_importing import rich_chat

WAIT_MS = 30_000


class Rig:
    def __init__(self, qtbot: QtBot) -> None:
        self.qtbot = qtbot
        self.owner = QObject()
        self.worker = ChatWorker(MEMORY)
        self.store = StoredChats(self.worker, NoticeList(self.owner), self.owner)
        self.transfers = ChatTransfers(self.store, self.owner)

    def stored(self) -> list[str]:
        return [chat.id for chat in self.worker.submit(ChatStore.chats).result(timeout=10)]

    def import_dialog(self) -> ImportDialog:
        dialog = ImportDialog(self.transfers)
        self.qtbot.addWidget(dialog)
        dialog.show()
        return dialog

    def export_dialog(self, *chats: tuple[str, str]) -> ExportDialog:
        dialog = ExportDialog(self.transfers, list(chats))
        self.qtbot.addWidget(dialog)
        dialog.show()
        return dialog

    def rich_chat(self) -> str:
        return self.worker.submit(rich_chat).result(timeout=10)

    def wait_for(self, dialog: ImportDialog, heading: str) -> None:
        self.qtbot.waitUntil(lambda: dialog._heading.text() == heading, timeout=WAIT_MS)

    def close(self) -> None:
        self.transfers.close()
        self.store.close()


@pytest.fixture
def rig(qtbot: QtBot) -> Iterator[Rig]:
    rig = Rig(qtbot)
    yield rig
    rig.close()


def test_importing(rig: Rig) -> None:
    dialog = rig.import_dialog()
    assert dialog._sources.isVisible()
    dialog.read([DATA])
    rig.wait_for(dialog, "12 chats found")
    assert "with 37 messages, 5 of them in other versions" in dialog._text.text()
    assert dialog._left_out.text().startswith("Not imported: 7 pictures")
    assert rig.stored() == []
    assert dialog._into_folder.isChecked()
    dialog._folder.setText("From before")
    with rig.qtbot.waitSignal(rig.transfers.chats_added, timeout=WAIT_MS):
        dialog._import.click()
    rig.wait_for(dialog, "Import finished")
    assert dialog._text.text() == "12 chats were imported."
    assert [folder.name for folder in rig.worker.submit(ChatStore.folders).result(timeout=10)] == ["From before"]
    with rig.qtbot.waitSignal(dialog.shown_requested, timeout=WAIT_MS) as asked:
        dialog._show.click()
    assert sorted(asked.args[0]) == sorted(rig.stored())
    assert not dialog.isVisible()


def test_files_without_chats_and_files_that_are_gone(rig: Rig, tmp_path: Path) -> None:
    dialog = rig.import_dialog()
    (tmp_path / "a.txt").write_text("Hello")
    dialog.read([tmp_path / "a.txt"])
    rig.wait_for(dialog, "No chats found")
    assert dialog._left_out.text() == "Not imported: 1 file without chats."
    assert not dialog._import.isVisible()
    dialog.read([tmp_path / "gone\u202e.json"])
    rig.wait_for(dialog, "The import didn’t work")
    assert "can't be read" in dialog._text.text()
    assert "\u202e" not in dialog._text.text()


def test_stopping_an_import(rig: Rig, tmp_path: Path) -> None:
    chats = [{"id": str(place), "messages": [{"role": "user", "content": "x" * 5000}]} for place in range(3000)]
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(chats))
    dialog = rig.import_dialog()
    dialog.read([path])
    rig.wait_for(dialog, "3,000 chats found")
    dialog._import.click()
    rig.qtbot.waitUntil(lambda: dialog._bar.value() > 0, timeout=WAIT_MS)
    dialog._close.click()
    rig.qtbot.waitUntil(lambda: dialog._heading.text() in ("Import stopped", "Import finished"), timeout=WAIT_MS)
    assert dialog._close.isEnabled()
    assert len(rig.stored()) > 0


def test_closing_the_dialog_stops_what_it_does(rig: Rig, tmp_path: Path) -> None:
    dialog = ImportDialog(rig.transfers)
    dialog.read([DATA])
    dialog.reject()
    delete(dialog)  # what comes late finds nothing
    rig.qtbot.waitUntil(rig.transfers._lane.is_idle, timeout=WAIT_MS)
    assert rig.stored() == []


@pytest.mark.parametrize(("name", "suffix"), [("markdown", ".md"), ("html", ".html"), ("json", ".json")])
def test_exporting(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, suffix: str) -> None:
    chat_id = rig.rich_chat()
    asked: list[str] = []

    def choose(_parent: object, _title: str, proposal: str, _filter: str) -> tuple[str, str]:
        asked.append(Path(proposal).name)
        return str(tmp_path / "chat"), ""

    monkeypatch.setattr(QFileDialog, "getSaveFileName", choose)
    dialog = rig.export_dialog((chat_id, "Green “tea”"))
    dialog.choose(name)
    with rig.qtbot.waitSignal(dialog.exported, timeout=WAIT_MS) as told:
        dialog._export.click()
    path = tmp_path / f"chat{suffix}"
    assert asked == [f"Green tea{suffix}"]
    assert told.args == [path]
    assert "How hot?" in path.read_text(encoding="utf-8")
    assert not dialog.isVisible()


def test_an_export_that_fails_says_so(rig: Rig, tmp_path: Path) -> None:
    dialog = rig.export_dialog((rig.rich_chat(), "x"))
    dialog._run("markdown", tmp_path / "no such folder" / "chat.md")
    rig.qtbot.waitUntil(dialog._error.isVisible, timeout=WAIT_MS)
    assert "No such file" in dialog._error.text()
    assert dialog._export.isEnabled()


def test_several_chats_into_a_folder(rig: Rig, tmp_path: Path) -> None:
    ids = [rig.worker.submit(lambda store: store.create_chat("same").id).result(timeout=10) for _ in range(2)]
    dialog = rig.export_dialog(*((one, "same") for one in ids))
    with rig.qtbot.waitSignal(dialog.exported, timeout=WAIT_MS):
        dialog._run("html", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["same 2.html", "same.html"]


def test_printing(rig: Rig, tmp_path: Path) -> None:
    chat_id = rig.rich_chat()
    html: list[str] = []
    rig.transfers.for_paper(chat_id, html.append, lambda error: pytest.fail(str(error)))
    rig.qtbot.waitUntil(lambda: bool(html), timeout=WAIT_MS)
    assert "How hot?" in html[0]
    printing = Printing(rig.owner)
    printer = QPrinter(QPrinter.PrinterMode.HighResolution)
    printer.setOutputFormat(QPrinter.OutputFormat.PdfFormat)
    printer.setOutputFileName(str(tmp_path / "chat.pdf"))
    printing.print_html(html[0], printer)
    rig.qtbot.waitUntil(printing._lane.is_idle, timeout=WAIT_MS)
    assert (tmp_path / "chat.pdf").read_bytes().startswith(b"%PDF")
    printing.close()


def test_a_printed_file_is_named_after_the_chat_without_what_no_name_may_have(rig: Rig, qtbot: QtBot) -> None:
    printing, window = Printing(rig.owner), QWidget()
    qtbot.addWidget(window)
    printing.ask("<p>Rain</p>", "A story about rain. And/or snow", window)
    dialog = window.findChild(QPrintDialog)
    assert dialog is not None and dialog.printer().docName() == "A story about rain And or snow"
    dialog.reject()
    printing.close()


@pytest.fixture(scope="module")
def html() -> Iterator[str]:
    """A text with two formulas, as it is exported."""
    helper = Helper(seconds=20.0)
    (html,) = helper.ask(RenderMarkdown([r"a $x^2$ and $$\frac{a}{b}$$ and $\unknown$"])).html
    yield html
    helper.stop()


def test_formulas_are_pictures_of_the_document(html: str) -> None:
    document = _Document(html)
    assert document.toPlainText().count("\ufffc") == 2
    assert r"$\unknown$" in document.toPlainText()
    pictures = [document.resource(QTextDocument.ResourceType.ImageResource.value, QUrl(f"formula:{n}")) for n in (0, 1)]
    for picture in pictures:
        assert isinstance(picture, QImage)
        dark = [picture.pixelColor(x, y).alpha() for x in range(picture.width()) for y in range(picture.height())]
        assert max(dark) > 200


def test_nothing_else_is_loaded(html: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    document = _Document(html)
    for name in ("formula:2", "formula:x", "formula:-1", (tmp_path / "a.png").as_uri(), "https://example.org/a.png"):
        assert document.loadResource(QTextDocument.ResourceType.ImageResource.value, QUrl(name)) is None
