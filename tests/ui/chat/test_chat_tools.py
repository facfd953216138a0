"""The tools of a chat: switched on and off in the composer, prompts of servers, their resources, and folders."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QInputDialog, QLabel, QLineEdit, QMenu, QWidgetAction
from pytestqt.qtbot import QtBot

from app.chats.settings import ChatSettings
from app.tools.messages import (
    CallEnded,
    ResultImage,
    ServerChanged,
    ServerEntry,
    ServerPrompt,
    ServerResource,
    ServerTool,
)
from app.ui.chat import context_meter
from app.ui.chat.attachments import IMAGES_SUBJECT
from app.ui.chat.chat_tools import READERS, ChatTools
from app.ui.chat.composer import Composer
from app.ui.chat.context_meter import ContextMeter
from tests.support.keyrings import MemoryKeyring
from tests.support.tool_process import entry
from tests.ui.chat.test_attachments import Desk
from tests.ui.parts import WAIT_MS
from tests.ui.tool_rig import ToolRig

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class ToolDesk(Desk):
    """A composer with tools."""

    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        super().__init__(qtbot, folder)
        self.tools = self.answers.tools = self.ctx.tools
        self.part = ChatTools(self.ctx, self.composer, self.attachments)
        self.button, self.editor = self.composer.tools_button, self.composer.editor

    def start(self) -> None:
        """The real tools process, with a real server called test."""
        self.tools.put(entry())
        self.qtbot.waitUntil(lambda: self.tools.servers["test"].state == "ready", timeout=WAIT_MS)

    def told(self, name: str, count: int = 0, **offers: object) -> None:
        """As if a server of this name had started, with so many tools."""
        tools = [ServerTool(name=f"tool_{place}", description=f"Does {place}.") for place in range(count)]
        self.tools.entries[name] = ServerEntry(name=name, command="x")
        self.tools._on_message(ServerChanged(name=name, state="ready", tools=tools, **offers))  # type: ignore[arg-type]

    def chosen(self) -> list[str] | None:
        return self.model.settings.tools

    def choose(self, *keys: str) -> None:
        self.model.set_settings(msgspec.structs.replace(self.model.settings, tools=list(keys)))

    def lines(self) -> dict[str, QAction]:
        """What the menu of the tools offers, those of servers with many included."""
        self.part.menu.aboutToShow.emit()
        found: dict[str, QAction] = {}
        for action in self.part.menu.actions():
            inner = action.menu()
            found |= {one.text(): one for one in (inner.actions() if isinstance(inner, QMenu) else [action])}
        return found

    def titles(self) -> list[str]:
        self.part.menu.aboutToShow.emit()
        return [action.text().replace("\u2068", "").replace("\u2069", "") for action in self.part.menu.actions()]

    def notes(self) -> list[str]:
        self.part.menu.aboutToShow.emit()
        parts = [one.defaultWidget() for one in self.part.menu.actions() if isinstance(one, QWidgetAction)]
        return [line for one in parts if isinstance(one, QLabel) for line in one.text().split("\n")]

    def clip(self) -> dict[str, QAction]:
        self.part.clip_menu.aboutToShow.emit()
        return {action.text().partition("\t")[0].replace("&", ""): action for action in self.part.clip_menu.actions()}

    def write(self, text: str) -> None:
        QTest.keyClicks(self.editor, text)

    def key(self, key: Qt.Key) -> None:
        """Press a key, where the system would send it."""
        popup = QApplication.activePopupWidget()
        QTest.keyClick(popup or self.editor, key)

    def offered(self) -> list[str]:
        """The prompts that are shown."""
        popup = self.editor._offers
        assert popup is not None
        model = popup.model()
        return [model.index(row, 0).data() for row in range(model.rowCount())] if popup.isVisible() else []

    def dialog(self, kind: type[QDialog]) -> QDialog:
        self.qtbot.waitUntil(lambda: any(one.isVisible() for one in self.area.findChildren(kind)), timeout=WAIT_MS)
        return next(one for one in self.area.findChildren(kind) if one.isVisible())


@pytest.fixture
def desk(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToolDesk]:
    monkeypatch.setattr(context_meter, "DELAY_MS", 20)
    desk = ToolDesk(qtbot, tmp_path)
    desk.area.activateWindow()
    desk.composer.setFocus()
    yield desk
    desk.close()


# ------------------------------------------------------------ the button


def test_without_tools_there_is_no_button_and_the_paper_clip_asks_for_files_at_once(desk: ToolDesk) -> None:
    assert desk.button.isHidden() and desk.composer.attach_button.menu() is None
    desk.choose(".calculate")
    assert not desk.button.isHidden() and desk.button.text() == "1 tool"
    assert desk.composer.attach_button.menu() is desk.part.clip_menu
    desk.lines()["None"].trigger()
    assert desk.button.text() == "0 tools" and not desk.button.isHidden()  # one can turn it on again
    desk.lines()["As in Settings"].trigger()
    assert desk.button.isHidden() and desk.composer.attach_button.menu() is None


def test_built_in_tools_are_off_and_those_of_servers_on(desk: ToolDesk) -> None:
    desk.told("web", 3)
    assert desk.button.text() == "3 tools" and desk.button.accessibleName() == "3 tools in this chat"
    lines = desk.lines()
    assert [text for text in ("calculate", "read_file", "tool_0", "tool_2") if lines[text].isChecked()] == [
        *("tool_0", "tool_2")
    ]
    lines["calculate"].trigger()
    lines["tool_1"].trigger()
    assert desk.chosen() == [".calculate", "web.tool_0", "web.tool_2"]
    assert desk.button.text() == "3 tools"
    lines["None"].trigger()
    assert desk.chosen() == [] and desk.button.text() == "0 tools"
    desk.lines()["All"].trigger()
    assert desk.button.text() == f"{len(desk.tools.all_tools())} tools"
    desk.lines()["As in Settings"].trigger()
    assert desk.chosen() is None and not desk.lines()["As in Settings"].isEnabled()


def test_a_switch_leaves_the_menu_open(desk: ToolDesk) -> None:
    desk.told("web", 3)
    desk.part.show(desk.button)
    menu = desk.part.menu
    action = next(one for one in menu.actions() if one.text() == "tool_1")
    QTest.mouseClick(menu, Qt.MouseButton.LeftButton, pos=menu.actionGeometry(action).center())
    assert desk.chosen() == ["web.tool_0", "web.tool_2"] and menu.isVisible()
    QTest.mouseRelease(menu, Qt.MouseButton.LeftButton, pos=menu.actionGeometry(action).center())
    assert desk.chosen() == ["web.tool_0", "web.tool_2"]  # the end of a click elsewhere
    menu.setActiveAction(action)
    QTest.keyClick(menu, Qt.Key.Key_Space)
    assert desk.button.text() == "3 tools" and menu.isVisible()
    QTest.keyClick(menu, Qt.Key.Key_Escape)
    assert not menu.isVisible()


def test_many_tools_have_a_menu_for_each_server(desk: ToolDesk) -> None:
    for place in range(8):
        desk.told(f"server {place} & more", 8)
    titles = desk.titles()
    assert titles[0] == "Slipstream   0 of 4" and titles[1] == "server 0 && more   8 of 8"
    desk.lines()["tool_3"].trigger()  # of the last one
    desk.qtbot.waitUntil(lambda: len(desk.part.menu.findChildren(QMenu)) == 9)
    assert "server 7 && more   7 of 8" in desk.titles()
    assert desk.button.text() == "63 tools"


def test_what_is_chosen_and_not_there_is_kept_and_said(desk: ToolDesk) -> None:
    desk.told("web", 1)
    desk.choose("web.tool_0", "gone.search", ".nothing")
    assert desk.button.text() == "1 tool" and "gone.search, nothing" in desk.button.toolTip()
    assert desk.notes() == ["Not available now: gone.search, nothing."]
    desk.lines()["tool_0"].trigger()
    desk.lines()["calculate"].trigger()
    assert desk.chosen() == [".calculate", "gone.search", ".nothing"]
    desk.lines()["All"].trigger()
    assert len(desk.chosen() or []) == len(desk.tools.all_tools()) + 2
    desk.lines()["None"].trigger()
    assert desk.chosen() == []


def test_tools_of_a_server_that_still_starts_stay_on(desk: ToolDesk) -> None:
    desk.told("web", 2)
    desk.tools.entries["slow"] = ServerEntry(name="slow", command="x")
    desk.tools._on_message(ServerChanged(name="slow", state="starting"))
    desk.lines()["tool_0"].trigger()
    desk.lines()["calculate"].trigger()
    assert desk.chosen() == ["web.tool_1", ".calculate"]
    desk.told("slow", 2)
    assert desk.chosen() == ["web.tool_1", ".calculate", "slow.tool_0", "slow.tool_1"]
    desk.tools._on_message(ServerChanged(name="slow", state="starting"))
    desk.lines()["None"].trigger()
    desk.told("slow", 3)
    assert desk.chosen() == []


def test_a_server_that_does_not_run_is_said_and_the_settings_are_near(desk: ToolDesk) -> None:
    desk.tools.entries["web"] = ServerEntry(name="web", command="x")
    desk.tools._on_message(ServerChanged(name="web", state="failed", message="It couldn't be started."))
    assert desk.button.text() == "0 tools" and desk.notes() == ["Not running: web."]
    desk.lines()["Tool settings…"].trigger()
    assert desk.actions.calls["tool_settings"] == [()]


def test_a_server_that_is_still_starting_is_said(desk: ToolDesk) -> None:
    desk.tools.entries["web"] = ServerEntry(name="web", command="x")
    desk.tools._on_message(ServerChanged(name="web", state="starting"))
    assert desk.button.text() == "0 tools" and desk.notes() == ["Still starting: web."]


def test_where_there_is_hardly_room_to_write_the_number_is_in_the_tooltip(desk: ToolDesk) -> None:
    desk.told("web", 2)
    wide = desk.composer.fontMetrics().averageCharWidth()
    for characters, text in ((80, "2 tools"), (40, "2"), (24, "")):
        desk.composer.resize(characters * wide, 100)
        assert desk.button.text() == text
    assert desk.button.toolTip().startswith("<qt>2 tools in this chat")


def test_more_than_the_model_is_given_is_said(desk: ToolDesk) -> None:
    desk.told("one", 100)
    desk.told("two", 100)
    assert desk.button.text() == "128 tools"
    assert desk.notes() == ["Only the first 128 tools are offered to the model."]


def test_a_format_that_does_not_go_with_tools_takes_them_away(desk: ToolDesk) -> None:
    desk.told("web", 2)
    desk.model.set_settings(ChatSettings(answer_format="regex", format_source="a+"))
    assert desk.button.text() == "0 tools"
    assert desk.notes() == ["Tools can't be used together with the answer format “Regular expression”."]
    assert desk.lines()["tool_0"].isChecked()  # they come back with free text
    desk.model.set_settings(ChatSettings())
    assert desk.button.text() == "2 tools"


def test_a_template_without_a_form_for_calls_is_said(desk: ToolDesk) -> None:
    desk.told("web", 2)
    assert not desk.notes()
    desk.load()
    assert all("a general one is used" in text for text in (desk.notes()[0], desk.button.toolTip()))
    desk.choose()
    assert not desk.notes()


def test_another_chat_has_its_own_tools(desk: ToolDesk) -> None:
    desk.load()
    desk.told("web", 2)
    desk.choose("web.tool_1")
    desk.ask("Hello")
    first = desk.model.id
    desk.chats.new()
    assert desk.button.text() == "2 tools"
    desk.open(first)
    assert desk.button.text() == "1 tool" and desk.chosen() == ["web.tool_1"]


def test_where_there_is_little_room_the_button_has_only_a_number(desk: ToolDesk) -> None:
    desk.told("web", 2)
    for widget in (desk.area, desk.composer):
        widget.setMinimumWidth(1)
    desk.area.resize(240, 400)
    desk.qtbot.waitUntil(lambda: desk.button.text() == "2")
    assert desk.button.accessibleName() == "2 tools in this chat"


def test_names_from_servers_are_plain_text(desk: ToolDesk) -> None:
    entry_name = "<b>web</b>\u202e"
    tool = ServerTool(name="a\nb<img src=x>" + "c" * 100, description="<img src='file:///etc/hostname'>\u202eevil")
    desk.tools.entries[entry_name] = ServerEntry(name=entry_name, command="x")
    desk.tools._on_message(ServerChanged(name=entry_name, state="ready", tools=[tool]))
    lines = desk.lines()
    (text,) = (text for text in lines if "img" in text)
    assert "\n" not in text and len(text) < 60
    assert "&lt;img" in lines[text].toolTip() and "\\u202e" in lines[text].toolTip()
    assert any("\\u202e" in title for title in desk.titles())


# ------------------------------------------------------------ prompts


PROMPTS = [
    ServerPrompt(name="summarize", title="Summarize a text"),
    ServerPrompt(name="think", description="Think about it"),
]


def test_a_prompt_of_a_real_server_is_asked_for_its_arguments_and_written_into_the_composer(desk: ToolDesk) -> None:
    desk.load()
    desk.start()
    desk.write("/rev")
    (line,) = desk.offered()
    assert line.startswith("/review") and "Review some code" in line and line.endswith("test")
    desk.key(Qt.Key.Key_Down)
    desk.key(Qt.Key.Key_Return)
    dialog = desk.dialog(QDialog)
    (field,) = dialog.findChildren(QLineEdit)
    buttons = {one.text(): one for one in dialog.findChildren(type(desk.composer.button))}
    assert not buttons["Insert"].isEnabled()
    QTest.keyClicks(field, "x = 1")
    assert buttons["Insert"].isEnabled()
    QTest.keyClick(field, Qt.Key.Key_Return)
    desk.qtbot.waitUntil(lambda: desk.composer.text() == "Please review: x = 1", timeout=WAIT_MS)
    assert not desk.model.messages and desk.composer.button.isEnabled()  # the user sends it, or doesn't


def test_a_prompt_that_comes_while_another_chat_is_shown_waits_in_its_own(desk: ToolDesk) -> None:
    desk.load()
    desk.ask("Hello")
    first = desk.model
    desk.start()
    desk.part._get_prompt("test", ServerPrompt(name="review"), {"code": "x\u202ey"})
    assert not desk.composer.button.isEnabled() and desk.chips() == ["review, reading…"]
    desk.chats.new()
    desk.qtbot.waitUntil(lambda: first.unsent.text != "", timeout=WAIT_MS)
    assert first.unsent.text == "Please review: x\\u202ey" and desk.composer.text() == ""


def test_a_prompt_that_fails_says_why_and_one_that_is_taken_away_writes_nothing(desk: ToolDesk) -> None:
    desk.start()
    desk.part._get_prompt("test", ServerPrompt(name="nothing"), {})
    assert desk.wait_for_notice().startswith("nothing: ")
    desk.part._get_prompt("test", ServerPrompt(name="review"), {"code": "x"})
    ended = desk.tools._jobs[max(desk.tools._jobs)].ended
    with desk.qtbot.waitSignal(ended, timeout=WAIT_MS):
        remove = desk.composer.attachments.chips.chips[0].remove
        assert remove is not None
        remove.click()
    assert desk.composer.text() == "" and desk.chips() == []


@pytest.mark.parametrize(
    "text",
    [
        *("/think", "/etc/hosts", "/", "//", "/summarize this", "/sum\nmore", "a /sum", "/gamemode creative"),
        *("/usr/bin/env", "/home/user/.zshrc doesn't exist. What should I do?", "/SUMMARIZE", "duck and/or goose"),
    ],
)
def test_a_slash_in_ordinary_text_does_not_get_in_the_way(desk: ToolDesk, text: str) -> None:
    desk.load()
    desk.told("web", prompts=PROMPTS)
    for letter in text:
        if letter == "\n":
            QTest.keyClick(desk.editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
        else:
            QTest.keyClicks(QApplication.activePopupWidget() or desk.editor, letter)
    assert desk.composer.text() == text
    desk.key(Qt.Key.Key_Return)
    desk.settle()
    assert desk.model.messages[0].text == text


def test_prompts_are_only_offered_at_the_beginning_and_escape_takes_them_away(desk: ToolDesk) -> None:
    desk.load()
    desk.told("web", prompts=PROMPTS)
    desk.write("/")
    assert [line.split()[0] for line in desk.offered()] == ["/summarize", "/think"]
    QTest.keyClicks(QApplication.activePopupWidget() or desk.editor, "T")
    assert [line.split()[0] for line in desk.offered()] == ["/think"]
    stopped: list[None] = []
    desk.composer.stop_requested.connect(lambda: stopped.append(None))
    desk.composer.set_busy(True)
    desk.key(Qt.Key.Key_Escape)
    assert not desk.offered() and not stopped and desk.composer.text() == "/T"
    for text in ("x", ""):
        desk.composer.set_text("/")
        assert desk.offered()
        desk.composer.set_text(text)
        assert not desk.offered()


# ------------------------------------------------------------ resources


def test_resources_of_a_real_server_are_attached_like_files(desk: ToolDesk) -> None:
    desk.load()
    desk.start()
    for name in ("memo", "drawn"):
        desk.clip()["Attach a resource from a server…"].trigger()
        dialog = desk.dialog(QInputDialog)
        assert isinstance(dialog, QInputDialog)
        dialog.setTextValue(next(one for one in dialog.comboBoxItems() if one.startswith(name)))
        dialog.accept()
        assert desk.model.unsent.reading and not desk.composer.button.isEnabled()
        desk.qtbot.waitUntil(lambda: not desk.model.unsent.reading, timeout=WAIT_MS)
    assert [(one.name, one.text) for one in desk.model.unsent.attachments] == [("memo", "Water the plants.")]
    assert IMAGES_SUBJECT in desk.notice_list.notices()  # the model doesn't see the other one


def test_images_and_texts_of_servers_are_checked_like_files(desk: ToolDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.load()
    monkeypatch.setattr(desk.pair_loader, "why_no_images", lambda: None)

    def attach(name: str, text: str = "", *images: bytes) -> None:
        found = [ResultImage(media_type="Image/PNG", data=one) for one in images]
        desk.attachments.attach_result(desk.model, name, CallEnded(request=1, state="done", text=text, images=found))
        desk.qtbot.waitUntil(lambda: not desk.model.unsent.reading, timeout=WAIT_MS)

    attach("../../x\n\u202etxt.exe" + "y" * 100, "text")
    attach("picture", "", PNG)
    attach("damaged", "", PNG[:40])
    assert "damaged" in desk.wait_for_notice()
    attach("not an image", "", b"<svg xmlns='http://www.w3.org/2000/svg'/>")
    first, second = desk.model.unsent.attachments
    assert first.text == "text" and first.name.isprintable() and len(first.name) <= 60
    assert (second.kind, second.name, second.width, second.media_type) == ("image", "picture", 1, "image/png")


def test_two_resources_of_one_name_can_be_told_apart(desk: ToolDesk) -> None:
    twice = [ServerResource(uri=f"https://nowhere.invalid/{place}", name="Log") for place in range(2)]
    desk.told("web", 1, resources=twice)
    desk.clip()["Attach a resource from a server…"].trigger()
    dialog = desk.dialog(QInputDialog)
    assert isinstance(dialog, QInputDialog)
    assert dialog.comboBoxItems() == ["Log   web", "Log   web · https://nowhere.invalid/1"]
    dialog.reject()


def test_without_resources_there_are_none_to_attach(desk: ToolDesk) -> None:
    desk.told("web", 1)
    assert not desk.clip()["Attach a resource from a server…"].isEnabled()
    desk.told("web", 1, resources=[ServerResource(uri="a://b")])
    assert desk.clip()["Attach a resource from a server…"].isEnabled()


# ------------------------------------------------------------ folders


def test_a_folder_is_chosen_shown_and_taken_away(desk: ToolDesk, tmp_path: Path) -> None:
    desk.load()
    desk.told("web", 1)
    desk.clip()["Let tools read a folder…"].trigger()
    dialog = desk.dialog(QFileDialog)
    assert isinstance(dialog, QFileDialog)
    dialog.fileSelected.emit(str(tmp_path))
    dialog.reject()
    assert desk.model.settings.folders == [str(tmp_path)]
    assert desk.chosen() == ["web.tool_0", *READERS] and desk.button.text() == "3 tools"
    assert desk.chips() == [f"{tmp_path}, tools may read it"]
    assert not desk.composer.button.isEnabled()  # a folder is no message
    desk.ask("What is there?")
    assert desk.chips() == [f"{tmp_path}, tools may read it"]  # it goes with the chat
    stored = desk.stored(lambda store: store.chat(desk.model.id).settings)
    assert str(tmp_path) in stored.replace("\\\\", "\\")
    remove = desk.composer.attachments.chips.chips[0].remove
    assert remove is not None
    remove.click()
    assert desk.model.settings.folders == [] and desk.chips() == []
    assert desk.chosen() == ["web.tool_0", *READERS]


# ------------------------------------------------------------ the context


def test_tools_are_in_the_context(desk: ToolDesk) -> None:
    desk.load()
    desk.told("web", 2)
    desk.qtbot.waitUntil(lambda: desk.meter.use is not None and desk.meter.use.tools == 4, timeout=WAIT_MS)
    assert desk.meter.use is not None
    assert ("Tools", "4\u00a0tokens") in desk.meter.use.rows() and desk.meter.use.total == 4
    desk.choose()
    desk.qtbot.waitUntil(lambda: desk.meter.use is not None and desk.meter.use.tools == 0, timeout=WAIT_MS)


@pytest.fixture
def rig(qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToolRig]:
    """With a real engine."""
    monkeypatch.setattr(context_meter, "DELAY_MS", 20)
    made = ToolRig(qtbot, tmp_path)
    yield made
    made.close()


def test_what_the_meter_says_is_what_the_engine_processes(qtbot: QtBot, rig: ToolRig) -> None:
    composer = Composer()
    qtbot.addWidget(composer)
    meter = ContextMeter(rig.ctx, composer, lambda _use: None)
    rig.begin("weather")

    def total(text: str) -> int:
        """As it is once everything has been counted."""
        rig.model.unsent.type("")
        qtbot.waitUntil(lambda: meter.use is not None and meter.use.text == 0, timeout=WAIT_MS)
        rig.model.unsent.type(text)
        qtbot.waitUntil(lambda: meter.use is not None and meter.use.text > 0, timeout=WAIT_MS)
        assert meter.use is not None and meter.use.tools > 0
        return meter.use.total

    said = total("Well?")
    rig.send()
    rig.finish()
    assert rig.started[0].prompt_tokens == said
    said, answered = total("And now?"), len(rig.started)
    rig.send("And now?")
    assert rig.started[answered].prompt_tokens == said  # the call and its result are in it
    rig.finish()
