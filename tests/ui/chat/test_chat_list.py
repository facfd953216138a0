"""The list on the left by itself: what it shows, and what it asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QTimer
from PySide6.QtGui import QColor, QContextMenuEvent, QDropEvent, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit, QMenu
from pytestqt.qtbot import QtBot

from app.chats.model import Chat, Folder, Found, Snippet
from app.ui.chat.chat_list import ChatList
from app.ui.chat.list.model import Heading, rows_of
from app.ui.chat.list.results import results_of
from app.ui.widgets import theme
from app.words import is_right_to_left
from tests.ui.recorded_actions import Recorded

pytestmark = pytest.mark.qt_log_ignore("^This plugin does not support", extend=True)

TODAY = date(2026, 11, 20)
HOME, WORK = Folder("home", "Home", 0.0), Folder("work", "Work", 0.0)
SHIFT, CTRL = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.ControlModifier
Key = Qt.Key


def at(day: int, hour: int = 12, month: int = 11, year: int = 2026) -> float:
    return datetime(year, month, day, hour).timestamp()


def chat(name: str, updated_at: float, folder: str | None = None, pinned_at: float | None = None) -> Chat:
    title = f"About {name}" if name != "untitled" else ""
    return Chat(name, title, updated_at, updated_at, None, pinned_at=pinned_at, folder_id=folder)


CHATS = [chat("a", at(20)), chat("b", at(19, 1)), chat("c", at(18)), chat("untitled", at(2, month=3))]


def titles(chat_list: ChatList) -> list[str]:
    """What stands in the list, headings and folders included."""
    model = chat_list.view.chats
    return [str(model.data(model.index(place))) for place in range(model.rowCount())]


def selected(chat_list: ChatList) -> list[str]:
    return [one.id for one in chat_list.view.selected_chats()]


def center(chat_list: ChatList, key: str) -> QPoint:
    place = chat_list.view.chats.place(key)
    assert place is not None
    return chat_list.view.visualRect(chat_list.view.chats.index(place)).center()


def click(chat_list: ChatList, key: str, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
    QTest.mouseClick(chat_list.view.viewport(), Qt.MouseButton.LeftButton, modifier, center(chat_list, key))


def menu_at(chat_list: ChatList, position: QPoint) -> QMenu:
    """The menu that is asked for there with the mouse."""
    event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, position, chat_list.view.viewport().mapToGlobal(position))
    QApplication.sendEvent(chat_list.view.viewport(), event)
    return open_menu(chat_list)


def open_menu(chat_list: ChatList) -> QMenu:
    menu = chat_list.view.findChildren(QMenu, options=Qt.FindChildOption.FindDirectChildrenOnly)[-1]
    assert isinstance(menu, QMenu)
    return menu


def entry(menu: QMenu, text: str) -> Callable[[], None]:
    """Choose this entry of a menu."""
    return next(one for one in menu.actions() if one.text().replace("&", "").split("\t")[0] == text).trigger


def editor_of(chat_list: ChatList) -> QLineEdit:
    editor = chat_list.view.viewport().findChild(QLineEdit)
    assert editor is not None
    return editor


@pytest.fixture
def chat_list(qtbot: QtBot) -> ChatList:
    widget = ChatList(Recorded())
    qtbot.addWidget(widget)
    widget.resize(220, 700)
    widget.show()
    widget.activateWindow()
    widget.set_chats(CHATS, today=TODAY)
    return widget


@pytest.fixture
def asked(chat_list: ChatList) -> Recorded:
    """What the list asks for."""
    assert isinstance(chat_list._actions, Recorded)
    return chat_list._actions


@pytest.fixture
def foldered(chat_list: ChatList) -> ChatList:
    """The same list with folders and a pinned chat."""
    show_folders(chat_list)
    return chat_list


def show_folders(chat_list: ChatList, chats: Sequence[Chat] = ()) -> None:
    inside = [chat("w1", at(20), "work"), chat("w2", at(17), "work"), chat("p", at(16), pinned_at=1.0)]
    everything = sorted([*chats, *CHATS, *inside], key=lambda one: -one.updated_at)
    chat_list.set_chats(everything, [HOME, WORK], TODAY)


# ---------------------------------------------------------------- what is shown


@pytest.mark.parametrize(
    ("moment", "group"),
    [
        (at(20, 0), "Today"),
        (at(21), "Today"),
        (at(19, 23), "Yesterday"),
        (at(18, 23), "Previous 7 days"),
        (at(13, 0), "Previous 7 days"),
        (at(12, 23), "Previous 30 days"),
        (at(21, 0, month=10), "Previous 30 days"),
        (at(20, 23, month=10), "October 2026"),
        (at(31, 23, month=12, year=2025), "December 2025"),
    ],
)
def test_groups(moment: float, group: str) -> None:
    assert rows_of([chat("one", moment)], [], today=TODAY)[0] == Heading(group)


def test_other_orders(foldered: ChatList) -> None:
    assert titles(foldered)[:7] == ["Pinned", "About p", "Home", "Work", "About w1", "About w2", "Today"]
    foldered.view.arrange("title")
    assert titles(foldered) == [
        *("Pinned", "About p", "Home", "Work", "About w1", "About w2"),
        *("Chats", "About a", "About b", "About c", "New chat"),
    ]
    foldered.view.arrange("oldest")
    assert titles(foldered)[4:] == [
        *("About w2", "About w1", "March 2026", "New chat"),
        *("Previous 7 days", "About c", "Yesterday", "About b", "Today", "About a"),
    ]


def test_a_closed_folder_hides_its_chats_and_says_how_many(qtbot: QtBot, foldered: ChatList) -> None:
    foldered.view.select("w2")
    QTest.keyClick(foldered.view, Key.Key_Left)  # from a chat to its folder
    model, place = foldered.view.chats, foldered.view.currentIndex()
    spoken = model.data(place, Qt.ItemDataRole.AccessibleTextRole)
    assert spoken == "Work, folder, 2 chats, expanded"
    with qtbot.waitSignal(foldered.view.arranged):
        QTest.keyClick(foldered.view, Key.Key_Left)
    assert "About w1" not in titles(foldered)
    assert model.collapsed == {"work"}
    spoken = model.data(foldered.view.currentIndex(), Qt.ItemDataRole.AccessibleTextRole)
    assert spoken == "Work, folder, 2 chats, collapsed"
    show_folders(foldered, [chat("new", at(20, 13))])  # after a refresh, too
    assert "About w1" not in titles(foldered)
    QTest.keyClick(foldered.view, Key.Key_Return)
    assert "About w1" in titles(foldered)
    foldered.view.arrange(collapsed=["work", "home"])
    foldered.set_chats(CHATS, [HOME], TODAY)  # one of them has gone
    assert model.collapsed == {"home"}


def test_titles_are_plain_text_in_tool_tips(chat_list: ChatList) -> None:
    wicked = Chat("w", "<img src='file:///etc/hostname'>", at(20), at(20), None)
    chat_list.set_chats([wicked], today=TODAY)
    tip = chat_list.view.chats.data(chat_list.view.chats.index(1), Qt.ItemDataRole.ToolTipRole)
    assert "<img" not in str(tip)
    assert "&lt;img" in str(tip)


def test_titles_of_other_scripts_are_read_from_where_they_begin() -> None:
    assert is_right_to_left("(שלום) and more")
    assert is_right_to_left("123 مرحبا")
    assert not is_right_to_left("Hello שלום")
    assert not is_right_to_left("如何排序")
    assert not is_right_to_left("1 + 1")


@pytest.mark.parametrize("colors", [theme.LIGHT, theme.DARK])
def test_what_is_selected_can_be_seen(dressed: None, chat_list: ChatList, colors: theme.Theme) -> None:
    theme.override(colors)
    chat_list.set_current("b")
    picture, view = chat_list.grab().toImage(), chat_list.view.viewport()

    def edge(key: str) -> QColor:
        """The color a little within the left end of a row."""
        return picture.pixelColor(view.mapTo(chat_list, QPoint(2, center(chat_list, key).y())))

    assert edge("c") == colors.raised
    assert theme.contrast(edge("b"), edge("c")) >= theme.MINIMUM_SHAPE_CONTRAST


# ---------------------------------------------------------------- opening and selecting


def test_a_click_opens_a_chat_and_keys_do(chat_list: ChatList, asked: Recorded) -> None:
    chat_list.set_current("a")
    QTest.keyClick(chat_list.view, Key.Key_Down)  # over a heading
    click(chat_list, "c")
    QTest.keyClick(chat_list.view, Key.Key_Return)
    assert asked.done == [("open_chat", "b"), ("open_chat", "c"), ("open_chat", "c")]


def test_several_are_selected_without_opening_them(foldered: ChatList, asked: Recorded) -> None:
    foldered.set_current("a")
    QTest.keyClick(foldered.view, Key.Key_Down, SHIFT)
    assert selected(foldered) == ["a", "b"]
    click(foldered, "untitled", CTRL)
    assert selected(foldered) == ["a", "b", "untitled"]
    click(foldered, "c", SHIFT)
    assert "c" in selected(foldered)
    QTest.keyClick(foldered.view, Key.Key_A, CTRL)
    assert sorted(selected(foldered)) == ["a", "b", "c", "p", "untitled", "w1", "w2"]
    assert all(index.data() not in ("Work", "Home") for index in foldered.view.selectedIndexes())
    assert asked.done == []


def test_marking_the_shown_chat_opens_nothing(chat_list: ChatList, asked: Recorded) -> None:
    chat_list.set_current("c")
    assert selected(chat_list) == ["c"]
    chat_list.set_current(None)
    assert selected(chat_list) == []
    chat_list.set_current("new")
    chat_list.set_chats([chat("new", at(20, 13)), *CHATS], today=TODAY)  # it was just made
    assert selected(chat_list) == ["new"]
    chat_list.set_chats([chat("a", at(20))], today=TODAY)
    assert asked.done == []


# ---------------------------------------------------------------- a refresh


def test_a_refresh_keeps_what_is_selected_and_where_the_keyboard_is(chat_list: ChatList, asked: Recorded) -> None:
    chat_list.set_current("a")
    QTest.keyClick(chat_list.view, Key.Key_Down, SHIFT)
    chat_list.set_chats([chat("new", at(20, 14)), chat("b", at(20, 13)), CHATS[0], *CHATS[2:]], today=TODAY)
    assert titles(chat_list)[:4] == ["Today", "About new", "About b", "About a"]
    assert selected(chat_list) == ["b", "a"]
    assert chat_list.view.currentIndex().data() == "About b"
    assert asked.done == []


def test_a_refresh_keeps_what_is_in_sight(qtbot: QtBot, chat_list: ChatList) -> None:
    many = [chat(f"number {number}", at(20) - number) for number in range(200)]
    chat_list.set_chats(many, today=TODAY)
    bar = chat_list.view.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 0)
    bar.setValue(bar.maximum() // 2)
    before = [one.id for one in many if chat_list.view.viewport().rect().contains(center(chat_list, one.id))]
    assert 5 < len(before) < 50
    chat_list.set_chats([chat("new", at(20, 14)), many[150], *many[:150], *many[151:]], today=TODAY)
    assert [one.id for one in many if chat_list.view.viewport().rect().contains(center(chat_list, one.id))] == before
    bar.setValue(0)
    chat_list.set_chats([chat("newer", at(20, 15)), *many], today=TODAY)  # at the top one sees what is new
    assert bar.value() == 0


def test_the_keyboard_stays_near_a_chat_that_has_gone(chat_list: ChatList, asked: Recorded) -> None:
    chat_list.set_current("c")
    chat_list.set_current(None)
    chat_list.set_chats([CHATS[0], CHATS[1], CHATS[3]], today=TODAY)
    assert chat_list.view.currentIndex().data() == "New chat"
    assert selected(chat_list) == []
    chat_list.view.setFocus()
    QTest.keyClick(chat_list.view, Key.Key_Delete)
    QTest.keyClick(chat_list.view, Key.Key_Up)
    assert asked.done == [("delete_chats", ["untitled"]), ("open_chat", "b")]


# ---------------------------------------------------------------- renaming


def test_renaming_the_folder_the_keyboard_is_at(qtbot: QtBot, foldered: ChatList, asked: Recorded) -> None:
    foldered.set_current("a")
    foldered.view.select("folder work")
    foldered.view.setFocus()
    foldered.rename_current()
    editor = editor_of(foldered)
    editor.selectAll()
    QTest.keyClicks(editor, "Play")
    QTest.keyClick(editor, Key.Key_Return)
    qtbot.waitUntil(lambda: not foldered.view.is_renaming())
    assert asked.done == [("name_folder", "work", "Play")]
    foldered.view.chats.set_content(CHATS, [Folder("work", "Play", 0.0)], TODAY)
    assert foldered.view.currentIndex().data() == "Play"  # the keyboard stays there


@pytest.mark.parametrize("key", [Key.Key_Return, Key.Key_Escape])
def test_a_title_being_typed_outlives_whatever_happens_to_the_list(
    qtbot: QtBot, chat_list: ChatList, asked: Recorded, key: Qt.Key
) -> None:
    chat_list.set_current("b")
    chat_list.rename_current()
    editor = editor_of(chat_list)
    assert editor.accessibleName() == "Title of the chat"
    editor.selectAll()
    QTest.keyClicks(editor, "Ra")
    chat_list.set_chats([chat("new", at(20)), chat("b", at(19))], today=TODAY)  # an answer came to its end
    chat_list.set_current("new")  # a message made a chat
    QTest.keyClicks(editor, "in")
    assert editor_of(chat_list) is editor
    assert asked.done == []
    QTest.keyClick(editor, key)
    qtbot.waitUntil(lambda: titles(chat_list) == ["Today", "About new", "Yesterday", "About b"])
    assert asked.done == ([("name_chat", "b", "Rain")] if key == Key.Key_Return else [])
    assert chat_list.view.currentIndex().data() == "About new"


def test_a_list_that_comes_right_after_the_renaming_is_the_one_that_counts(qtbot: QtBot, chat_list: ChatList) -> None:
    chat_list.set_current("b")
    chat_list.rename_current()
    chat_list.set_chats(CHATS, today=TODAY)  # an answer came to its end
    QTest.keyClick(editor_of(chat_list), Key.Key_Return)
    QApplication.sendPostedEvents()  # the editor closes; timers come later
    assert not chat_list.view.is_renaming()
    chat_list.set_chats([chat("new", at(20))], today=TODAY)
    later: list[bool] = []
    QTimer.singleShot(0, lambda: later.append(True))  # after the list's own
    qtbot.waitUntil(lambda: bool(later))
    assert titles(chat_list) == ["Today", "About new"]


def test_a_chat_that_goes_ends_the_renaming_of_it(chat_list: ChatList, asked: Recorded) -> None:
    chat_list.set_current("b")
    chat_list.rename_current()
    QTest.keyClicks(editor_of(chat_list), "Never")
    chat_list.set_chats([CHATS[0]], today=TODAY)
    assert titles(chat_list) == ["Today", "About a"]
    assert not chat_list.view.is_renaming()
    assert asked.done == []


# ---------------------------------------------------------------- deleting, pins, folders


def test_the_delete_key_deletes_what_is_selected_while_the_list_has_focus(foldered: ChatList, asked: Recorded) -> None:
    foldered.set_current("a")
    foldered.search_field.setFocus()
    QTest.keyClick(foldered.search_field, Key.Key_Delete)
    assert asked.done == []
    foldered.view.setFocus()
    QTest.keyClick(foldered.view, Key.Key_Down, SHIFT)
    QTest.keyClick(foldered.view, Key.Key_Delete)
    foldered.view.select("folder work")
    QTest.keyClick(foldered.view, Key.Key_Delete)
    assert asked.done == [("delete_chats", ["a", "b"]), ("delete_folder", "work")]


def test_a_menu_that_is_open_while_the_list_is_filled_anew(chat_list: ChatList, asked: Recorded) -> None:
    menu = menu_at(chat_list, center(chat_list, "a"))
    chat_list.set_chats([chat("b", at(20)), chat("a", at(19))], today=TODAY)
    entry(menu, "Delete")()
    entry(menu, "Pin")()
    entry(menu, "Export…")()
    assert asked.done == [("delete_chats", ["a"]), ("pin_chats", ["a"], True), ("export_chats", ["a"])]
    entry(menu, "Rename…")()
    assert editor_of(chat_list).text() == "About a"


def test_the_menu_is_for_all_that_are_selected_or_for_the_chat_below_it(chat_list: ChatList, asked: Recorded) -> None:
    chat_list.set_current("a")
    QTest.keyClick(chat_list.view, Key.Key_Down, SHIFT)
    entry(menu_at(chat_list, center(chat_list, "b")), "Delete 2 chats")()
    entry(menu_at(chat_list, center(chat_list, "c")), "Delete")()
    assert selected(chat_list) == ["a", "b"]
    chat_list.set_current("b")
    event = QContextMenuEvent(QContextMenuEvent.Reason.Keyboard, QPoint(5, 5), QPoint(5, 5))
    QApplication.sendEvent(chat_list.view.viewport(), event)
    entry(open_menu(chat_list), "Delete")()
    assert asked.done == [("delete_chats", ["a", "b"]), ("delete_chats", ["c"]), ("delete_chats", ["b"])]


def test_the_menu_of_a_folder_and_of_the_list(foldered: ChatList, asked: Recorded) -> None:
    menu = menu_at(foldered, center(foldered, "folder work"))
    entry(menu, "Collapse")()
    assert foldered.view.chats.collapsed == {"work"}
    entry(menu, "Delete folder")()
    assert asked.done == [("delete_folder", "work")]
    entry(menu_at(foldered, QPoint(20, foldered.view.viewport().height() - 2)), "By title")()
    assert foldered.view.chats.order == "title"


@pytest.mark.parametrize(
    ("dragged", "target", "expected"),
    [
        (["a", "b"], "folder home", [("move_chats", ["a", "b"], "home")]),
        (["a", "w1"], "w2", [("move_chats", ["a"], "work")]),
        (["w1"], "b", [("move_chats", ["w1"], None)]),
        (["w1"], "heading Today", [("move_chats", ["w1"], None)]),
        (["w1"], "", [("move_chats", ["w1"], None)]),
        (["a", "p"], "heading Pinned", [("pin_chats", ["a"], True)]),
        (["p"], "a", [("pin_chats", ["p"], False)]),
        (["p"], "folder work", [("move_chats", ["p"], "work"), ("pin_chats", ["p"], False)]),
        (["a"], "b", []),
        (["gone"], "folder home", []),
    ],
)
def test_dropping_chats(
    foldered: ChatList, asked: Recorded, dragged: list[str], target: str, expected: list[tuple[object, ...]]
) -> None:
    view, model = foldered.view, foldered.view.chats
    if dragged == ["gone"]:
        data = QMimeData()
        data.setData(model.mimeTypes()[0], b"gone")
    else:
        data = model.mimeData([model.index(model.place(one) or 0) for one in dragged])
    position = center(foldered, target) if target else QPoint(20, view.viewport().height() - 2)
    event = QDropEvent(
        QPointF(position),
        Qt.DropAction.MoveAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    view.dropEvent(event)
    assert asked.done == expected


# ---------------------------------------------------------------- search


def test_search_is_asked_for_once_typing_pauses(qtbot: QtBot, chat_list: ChatList, asked: Recorded) -> None:
    QTest.keyClicks(chat_list.search_field, "poem")
    assert asked.done == []
    qtbot.waitUntil(lambda: bool(asked.done))
    assert asked.done == [("search", "poem")]
    QTest.keyClick(chat_list.search_field, Key.Key_Escape)
    assert asked.done[1:] == [("search", "")]


def test_a_passage_of_the_thinking_says_so_and_marks_the_words() -> None:
    chat = Chat("c", "Title", 0.0, 0.0, None)
    line = "…a long way before the word that was looked for"
    snippets = (Snippet("m", line, ((23, 4),), is_thinking=True), Snippet("n", "word", ((0, 4),)))
    _title, thought, said = results_of([Found(chat, snippets)], "word")
    assert thought.text == "Thinking: …ay before the word that was looked for"
    called = Snippet("m", "find_kettle path: kitchen", matches=((0, 11),), is_call=True)
    assert [one.text for one in results_of([Found(chat, (called,))], "find_kettle")][1:] == [
        "Tool: find_kettle path: kitchen"
    ]
    assert [thought.text[start : start + length] for start, length in thought.matches] == ["word"]
    assert said.text == "word"


def test_chats_that_are_being_answered_have_a_mark(chat_list: ChatList) -> None:
    rows = chat_list.view.chats

    def picture(key: str) -> QImage:
        place = rows.place(key)
        assert place is not None
        return chat_list.view.viewport().grab(chat_list.view.visualRect(rows.index(place))).toImage()

    before = {key: picture(key) for key in ("a", "b", "c")}
    rows.set_answering("b", True)
    rows.set_answering("c", True)
    assert picture("a") == before["a"] and picture("b") != before["b"] and picture("c") != before["c"]
    rows.set_answering("b", False)
    assert picture("b") == before["b"] and picture("c") != before["c"]
