"""Files and long texts attached in the composer: chosen, dropped, pasted, shown, removed, made shorter."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, QSize, Qt, QUrl
from PySide6.QtGui import QAction, QDragEnterEvent, QDragLeaveEvent, QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMessageBox, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.chats.model import Attachment, StoredMessage
from app.ui.chat import context_meter
from app.ui.chat.attachments import SUBJECT, Attachments
from app.ui.chat.chips import AttachmentPreview, Chip, Chips
from app.ui.chat.composer import LONG_CHARACTERS, LONG_LINES, Composer
from app.ui.chat.context_meter import ContextMeter
from app.ui.chat.drop_area import DropArea
from app.ui.chat.messages import UserMessage
from app.ui.widgets.column import Widths
from app.ui.widgets.controls import column
from tests.ui.parts import WAIT_MS, Rig
from tests.ui.recorded_actions import Recorded
from tests.ui.scripted_engine import CONTEXT_LENGTH

LONG = "word " * (LONG_CHARACTERS // 5 + 1)


class Desk(Rig):
    """A rig with a composer in a place for files."""

    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        super().__init__(qtbot, folder, "well")
        self.area, self.composer = DropArea(), Composer()
        qtbot.addWidget(self.area)
        self.below = QWidget()
        column((self.below, 1), self.composer, on=self.area)
        self.area.resize(700, 500)
        self.meter = ContextMeter(self.ctx, self.composer, lambda _use: None)
        self.composer.begin(self.ctx)
        self.attachments = Attachments(self.ctx, self.composer, self.area, self.meter)
        self.actions.answers = {
            "tokens_of": self.meter.tokens_of,
            "show_attachment": self.attachments.preview,
            "load_thumbnail": self.attachments.thumbnails.load,
        }
        self.chats.begin(None)
        self.area.show()
        qtbot.waitExposed(self.area)

    def file(self, name: str, content: str | bytes = "Green tea: 80 degrees.") -> str:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def chips(self) -> list[str]:
        return [chip.text().replace("\u00a0", " ") for chip in self.composer.attachments.chips.chips]

    def wait_for(self, *chips: str) -> None:
        def check() -> None:
            assert self.chips() == list(chips)

        self.qtbot.waitUntil(check, timeout=WAIT_MS)

    def wait_for_notice(self, subject: str = SUBJECT) -> str:
        self.qtbot.waitUntil(lambda: subject in self.notice_list.notices(), timeout=WAIT_MS)
        return self.notice_list.notices()[subject].text

    def close(self) -> None:
        for part in (self.attachments, self.meter):
            part.deleteLater()
        super().close()


@pytest.fixture
def desk(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(context_meter, "DELAY_MS", 20)
    desk = Desk(qtbot, tmp_path)
    yield desk
    desk.close()


def mime(*paths: str, text: str = "") -> QMimeData:
    data = QMimeData()
    if paths:
        data.setUrls([QUrl.fromLocalFile(path) for path in paths])
    if text:
        data.setText(text)
    return data


def drag(widget: QWidget, data: QMimeData) -> bool:
    """Drag over a widget; returns whether it would take it."""
    event = QDragEnterEvent(
        QPoint(5, 5), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    )
    event.ignore()
    QApplication.sendEvent(widget, event)
    return event.isAccepted()


def drop(widget: QWidget, data: QMimeData) -> QDropEvent:
    """Drop something where it was dragged; it might also be moved."""
    assert drag(widget, data)
    actions = Qt.DropAction.MoveAction | Qt.DropAction.CopyAction
    event = QDropEvent(QPointF(5, 5), actions, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
    event.setDropAction(Qt.DropAction.MoveAction)
    QApplication.sendEvent(widget, event)
    return event


# ------------------------------------------------------------ dropped


def test_dropped_files_become_chips_and_are_sent(desk: Desk) -> None:
    desk.load()
    data = mime(desk.file("notes.md"), desk.file("tea.csv", "Sencha,80"), desk.file("tea.GGUF", b"GGUF"))
    assert drag(desk.area, data)
    assert desk.area.target.isVisible()
    event = drop(desk.area, data)
    assert not desk.area.target.isVisible()
    assert event.dropAction() is Qt.DropAction.CopyAction  # or the file manager would remove them
    desk.wait_for("notes.md, 7 tokens", "tea.csv, 4 tokens")
    assert desk.actions.calls["open_model_file"] == [(str(desk.folder / "tea.GGUF"),)]
    assert desk.composer.button.isEnabled()
    QTest.keyClick(desk.composer.editor, Qt.Key.Key_Return)
    desk.settle()
    assert [one.name for one in desk.model.messages[0].attachments] == ["notes.md", "tea.csv"]
    assert desk.chips() == []
    assert not desk.composer.button.isEnabled()


def test_the_target_is_only_there_while_files_are_over_it(desk: Desk) -> None:
    assert not drag(desk.area, mime(text="only text"))
    assert not desk.area.target.isVisible()
    web = QMimeData()
    web.setUrls([QUrl("https://example.com/a.txt")])
    assert not drag(desk.area, web)
    data = mime(desk.file("notes.md"))
    drag(desk.area, data)
    QApplication.sendEvent(desk.area, QDragLeaveEvent())
    assert not desk.area.target.isVisible()
    assert drag(desk.composer.editor.viewport(), data)  # the area around it takes the files
    assert desk.area.target.isVisible()
    assert desk.area.target.size() == desk.area.size()
    assert drag(desk.composer.editor.viewport(), mime(text="only text"))


def test_what_cannot_be_attached_is_said_for_each_file(desk: Desk) -> None:
    folder = desk.folder / "papers"
    folder.mkdir()
    paths = [str(folder), desk.file("empty.txt", ""), desk.file("a.bin", b"\0\1\2"), desk.file("notes.md")]
    if sys.platform != "win32":
        (desk.folder / "zero.txt").symlink_to("/dev/zero")
        paths.append(str(desk.folder / "zero.txt"))
    drop(desk.area, mime(*paths))
    desk.wait_for("notes.md, 1 KB")
    desk.qtbot.waitUntil(lambda: "papers is" in desk.wait_for_notice(), timeout=WAIT_MS)
    lines = desk.wait_for_notice().split("\n")
    assert {"papers is a folder. Attach the files in it instead.", "empty.txt has no text in it."} <= {*lines}
    assert any(line.startswith("a.bin isn't a kind of file that can be attached. Text, code,") for line in lines)
    if sys.platform != "win32":
        assert "zero.txt is a device or a pipe, and not a file that can be attached." in lines
    drop(desk.area, mime(desk.file("more.md", "more")))
    desk.wait_for("notes.md, 1 KB", "more.md, 1 KB")
    assert SUBJECT not in desk.notice_list.notices()


def test_there_is_a_limit(desk: Desk) -> None:
    paths = [desk.file(f"{number}.txt", f"{number}") for number in range(22)]
    for _ in range(2):  # the same file is attached once
        desk.attachments.attach_files(paths[:1])
    desk.qtbot.waitUntil(lambda: not desk.model.unsent.reading and bool(desk.model.unsent.attachments), timeout=WAIT_MS)
    desk.settle()
    assert desk.chips() == ["0.txt, 1 KB"]
    desk.attachments.attach_files(paths[1:])
    assert desk.wait_for_notice() == "No more than 20 files can be attached to a message."
    desk.qtbot.waitUntil(lambda: len(desk.model.unsent.attachments) == 20, timeout=WAIT_MS)
    part = desk.composer.attachments
    assert part.chips.height() > part.height()  # it scrolls


# ------------------------------------------------------------ chats of another app


def chat_file(desk: Desk) -> str:
    messages = [{"role": "user", "content": "How hot?"}, {"role": "assistant", "content": "80 degrees."}]
    return desk.file("chats.jsonl", json.dumps({"messages": messages}))


def question(desk: Desk) -> QMessageBox:
    def found() -> list[QMessageBox]:
        return [box for box in desk.area.findChildren(QMessageBox) if box.isVisible()]

    desk.qtbot.waitUntil(lambda: len(found()) == 1, timeout=WAIT_MS)
    return found()[0]


def press(box: QMessageBox, name: str) -> None:
    next(button for button in box.buttons() if button.text().replace("&", "") == name).click()


def test_chats_of_another_app_are_imported_or_attached(desk: Desk) -> None:
    path = chat_file(desk)
    imported = desk.actions.calls["import_chats"]
    desk.attachments.attach_files([path, desk.file("other.json", '{"tea": 80}')])
    box = question(desk)
    assert box.text() == "chats.jsonl contains chats that were exported from an app."
    press(box, "Import")
    desk.wait_for("other.json, 1 KB")
    assert imported == [([Path(path)],)]
    desk.attachments.attach_files([path])
    press(question(desk), "Attach")
    desk.wait_for("other.json, 1 KB", "chats.jsonl, 1 KB")
    assert len(imported) == 1
    desk.attachments.attach_files([path])
    press(question(desk), "Cancel")
    assert len(desk.chips()) == 2
    folder = desk.folder / "conversations"
    folder.mkdir()
    Path(path).rename(folder / "chats.jsonl")
    desk.attachments.attach_files([str(folder)])
    box = question(desk)
    assert box.text() == "conversations contains chats that were exported from an app."
    press(box, "Import")
    assert imported[1:] == [([folder],)]
    (folder / "chats.jsonl").write_text("{}")
    desk.attachments.attach_files([str(folder)])
    assert desk.wait_for_notice() == "conversations is a folder. Attach the files in it instead."


# ------------------------------------------------------------ pasted


def test_a_long_text_that_is_pasted_is_attached(desk: Desk) -> None:
    paste = desk.composer.editor.insertFromMimeData
    for short in ("a" * LONG_CHARACTERS, "line\n" * (LONG_LINES - 1)):
        desk.composer.set_text("")
        paste(mime(text=short))
        assert desk.composer.text() == short and not desk.model.unsent.attachments
    desk.composer.set_text("")
    desk.composer.editor.insertPlainText("See: ")
    paste(mime(text=LONG))
    paste(mime(text="line\n" * LONG_LINES))
    desk.wait_for("Pasted text, 4 KB", "Pasted text 2, 1 KB")
    assert desk.composer.text() == "See: "
    desk.composer.attachments.as_text.click()
    desk.wait_for("Pasted text, 4 KB")
    assert desk.composer.text() == "See: " + "line\n" * LONG_LINES
    assert desk.composer.attachments.as_text.isVisible()
    desk.composer.attachments.as_text.click()
    desk.wait_for()
    text = desk.composer.text()
    assert text.endswith("line\n" + LONG)
    assert not desk.composer.attachments.isVisible()
    path = desk.file("notes.md")
    data = mime(path, text=path)  # as file managers do
    assert desk.composer.editor.canInsertFromMimeData(data)
    paste(data)
    desk.wait_for("notes.md, 1 KB")
    assert desk.composer.text() == text


# ------------------------------------------------------------ chips


def test_a_chip_can_be_removed_with_mouse_and_keyboard(desk: Desk) -> None:
    desk.attachments.attach_files([desk.file(f"{number}.md", f"{number}") for number in range(3)])
    desk.wait_for("0.md, 1 KB", "1.md, 1 KB", "2.md, 1 KB")
    first = desk.composer.attachments.chips.chips[0]
    assert first.remove is not None
    assert first.remove.accessibleName() == "Remove 0.md"
    first.remove.click()
    assert desk.chips() == ["1.md, 1 KB", "2.md, 1 KB"]
    QTest.keyClick(desk.composer.attachments.chips.chips[1].button, Qt.Key.Key_Delete)
    QTest.keyClick(desk.composer.attachments.chips.chips[0].button, Qt.Key.Key_Backspace)
    assert desk.chips() == []
    assert not desk.composer.button.isEnabled()
    desk.settle()
    assert desk.stored(lambda store: store.unsent_attachments(None)) == ()


def test_reading_can_be_given_up_and_sending_waits_for_it(desk: Desk) -> None:
    desk.load()
    desk.composer.set_text("How hot?")
    unsent = desk.model.unsent
    number = unsent.begin_reading("slow.pdf")
    assert desk.chips() == ["slow.pdf, reading…"]
    assert not desk.composer.button.isEnabled()
    assert desk.composer.button.toolTip() == "Send (once the files have been read)"
    QTest.keyClick(desk.composer.editor, Qt.Key.Key_Return)
    assert desk.model.messages == []
    chip = desk.composer.attachments.chips.chips[0]
    assert chip.remove is not None
    chip.remove.click()
    assert desk.chips() == []
    assert desk.composer.button.isEnabled()
    assert not unsent.end_reading(number)  # what comes of it later isn't attached


def test_a_file_goes_to_the_chat_it_was_attached_in(desk: Desk) -> None:
    desk.load()
    desk.ask("One")
    chat_id = desk.model.id
    desk.attachments.attach_files([desk.file("notes.md")])
    desk.chats.new()
    assert desk.chips() == []
    desk.qtbot.waitUntil(
        lambda: len(desk.stored(lambda store: store.unsent_attachments(chat_id))) == 1, timeout=WAIT_MS
    )
    assert desk.chips() == []
    desk.open(chat_id)
    desk.wait_for("notes.md, 7 tokens")


def choices(chip: Chip) -> dict[str, QAction]:
    assert chip.more is not None
    menu = chip.more.menu()
    assert menu is not None
    return {action.text(): action for action in menu.actions()}


def test_a_guessed_encoding_is_named_and_another_can_be_chosen(desk: Desk) -> None:
    desk.attachments.attach_files(
        [desk.file("a.csv", "Товар;Цена\nЧайник;тысяча\n".encode("cp1251")), desk.file("b.md")]
    )
    desk.wait_for("a.csv, 1 KB, read as Windows-1251", "b.md, 1 KB")
    chip, other = desk.composer.attachments.chips.chips
    assert other.more is None
    assert "read as Windows-1251" in chip.button.text() and "read as Windows-1251" in chip.button.toolTip()
    choices(chip)["Read as DOS 866 (Cyrillic)"].trigger()
    desk.wait_for("a.csv, 1 KB, read as DOS 866", "b.md, 1 KB")
    choices(desk.composer.attachments.chips.chips[0])["Read as Windows-1251 (Cyrillic)"].trigger()
    desk.wait_for("a.csv, 1 KB, read as Windows-1251", "b.md, 1 KB")
    assert desk.model.unsent.attachments[0].text == "Товар;Цена\nЧайник;тысяча\n"


def test_a_web_page_can_be_attached_as_its_source(desk: Desk) -> None:
    page = "<h1>Tea</h1><script>go()</script><img src=a.png>"
    desk.attachments.attach_files([desk.file("a.html", page + "<p>a long text")])
    without = "left out: 1 picture without a description"
    desk.wait_for(f"a.html, 1 KB, {without}")
    chip = desk.composer.attachments.chips.chips[0]
    chip.button.click()
    (preview,) = desk.area.findChildren(AttachmentPreview)
    assert preview.details.text().endswith("characters. Left out: 1 picture without a description.")
    preview.accept()
    choices(chip)["Attach its source instead"].trigger()
    desk.wait_for("a.html, 1 KB")
    assert desk.model.unsent.attachments[0].text.startswith("<h1>")
    choices(desk.composer.attachments.chips.chips[0])["Attach its text only"].trigger()
    desk.wait_for(f"a.html, 1 KB, {without}")


def test_names_are_shown_as_plain_text(desk: Desk) -> None:
    name = "<b>a&b</b>\u202e.txt" if sys.platform != "win32" else "a&b\u202e.txt"
    desk.model.unsent.attach([Attachment("a" * 64, "text", name, 5, text="a")])
    chip = desk.composer.attachments.chips.chips[0]
    assert "&&" in chip.button.text()
    assert "<b>" not in chip.button.toolTip()
    assert "\u202e" not in chip.button.text() + chip.button.toolTip() + chip.text()


# ------------------------------------------------------------ too long


def test_what_is_too_long_is_said_and_its_beginning_can_be_used(desk: Desk) -> None:
    desk.load()
    desk.composer.set_text("How hot?")
    desk.attachments.attach_files([desk.file("book.txt", "word \n" * 2 * CONTEXT_LENGTH), desk.file("a.txt", "a b")])
    desk.qtbot.waitUntil(lambda: "context" in desk.notice_list.notices(), timeout=WAIT_MS)
    notice = desk.notice_list.notices()["context"]
    too_many = 2 * CONTEXT_LENGTH + 3 + 5 + 2 - (CONTEXT_LENGTH - 16)  # names and fences count, too
    assert notice.text.replace("\u00a0", " ") == (
        f"With its attachments, this message is {too_many:,} tokens too long for the context."
    )
    assert notice.actions == ("use_beginning", "raise_context")
    desk.attachments.use_beginning()
    desk.qtbot.waitUntil(lambda: desk.meter.use is not None and desk.meter.use.fits(), timeout=WAIT_MS)
    desk.qtbot.waitUntil(lambda: "context" not in desk.notice_list.notices(), timeout=WAIT_MS)
    names = [(one.name, one.media_type) for one in desk.model.unsent.attachments]
    assert names == [("book.txt (beginning)", "text/plain"), ("a.txt", "text/plain")]
    assert desk.model.unsent.attachments[0].text.startswith("word \nword ")
    assert desk.meter.use is not None
    assert desk.meter.use.total > CONTEXT_LENGTH // 2  # as much as there is room for


# ------------------------------------------------------------ in messages


def shown(qtbot: QtBot, message: StoredMessage, actions: Recorded) -> UserMessage:
    owner = QWidget()
    qtbot.addWidget(owner, before_close_func=lambda _: owner.hide())  # it is kept as long as the test runs
    widget = UserMessage(message, actions, owner)
    widget.resize(600, widget.fit(Widths(600, 600)))
    owner.show()
    return widget


def sent(text: str, *names: str) -> StoredMessage:
    attachments = tuple(Attachment(name * 64, "text", f"{name}.md", 9, text=name) for name in names)
    return StoredMessage("m", "c", None, "user", text, "complete", 0.0, attachments=attachments)


def test_a_message_shows_what_was_attached(qtbot: QtBot) -> None:
    actions = Recorded()
    message = shown(qtbot, sent("How hot?", "a", "b"), actions)
    assert message.chips is not None
    assert [chip.name for chip in message.chips.chips] == ["a.md", "b.md"]
    assert all(chip.remove is None for chip in message.chips.chips)
    message.chips.chips[1].button.click()
    assert actions.calls["show_attachment"] == [(message.stored.attachments[1],)]
    assert message.spoken() == "You: How hot? Attached: a.md, b.md."
    assert message.chips.geometry().bottom() < message.view.geometry().top()
    assert shown(qtbot, sent("How hot?"), Recorded()).chips is None
    of_files_alone = shown(qtbot, sent("", "a"), Recorded())
    assert not of_files_alone.view.isVisibleTo(of_files_alone)
    assert of_files_alone.is_drawn()


def test_what_is_attached_can_be_removed_while_editing(qtbot: QtBot) -> None:
    actions = Recorded()
    message = shown(qtbot, sent("", "a", "b"), actions)

    def names() -> list[str]:
        assert message.chips is not None
        return [chip.name for chip in message.chips.chips]

    def remove_first() -> QPushButton:
        """While editing; gives back the button that saves."""
        message.start_editing()
        assert message.chips is not None and message.editing is not None
        chip = message.chips.chips[0]
        assert chip.remove is not None
        chip.remove.click()
        return message.editing.save_button

    remove_first()
    assert names() == ["b.md"]
    message.stop_editing()
    assert names() == ["a.md", "b.md"]
    button = remove_first()
    assert button.isEnabled()
    button.click()
    remove_first()
    button = remove_first()
    assert not button.isEnabled()  # nothing would be left
    assert message.editing is not None
    message.editing.text.setPlainText("How hot?")
    button.click()
    kept = message.stored.attachments[1:]
    assert actions.calls["edit_message"] == [("m", "", kept), ("m", "How hot?", ())]


def test_a_low_chip_beside_a_high_one_is_not_covered_by_the_next_row(qtbot: QtBot) -> None:
    chips = Chips()
    qtbot.addWidget(chips)
    high = Chip("a.png", "36 tokens", chips, picture=QSize(60, 90))
    chips.show_chips([high, *(Chip(f"{number}.txt", "9 tokens", chips) for number in range(6))])
    width = high.styled_size().width() + chips.chips[1].styled_size().width() + 30
    height = chips.fit(width)
    places = [chip.geometry() for chip in chips.chips]
    assert not any(one.intersects(other) for at, one in enumerate(places) for other in places[:at])
    assert height == max(place.bottom() + 1 for place in places)


def test_a_short_name_is_whole_in_every_size_of_type(qtbot: QtBot) -> None:
    chips = Chips()
    qtbot.addWidget(chips)
    for name, size in itertools.product(("Pasted text", "report.pdf", "a.py", "Letter.docx"), range(6, 18)):
        chips.setStyleSheet(f"QPushButton {{ font-size: {size}px }}")
        chip = Chip(name, "9 tokens", chips)
        chip.fit(1000)
        assert chip.button.text() == f"{name}  ·  9 tokens"
