"""The menu bar: every action of the window with its shortcut, in one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar

from app.ui.chat.composer import ATTACH_KEYS

_KEY = QKeySequence.StandardKey
Keys: TypeAlias = str | QKeySequence.StandardKey
"""A combination of keys, or what the system uses for a purpose."""


@dataclass(frozen=True)
class _Entry:
    """One line of a menu."""

    name: str
    text: str
    keys: Keys | tuple[Keys, ...] = ()
    checkable: bool = False
    role: QAction.MenuRole = QAction.MenuRole.NoRole
    everywhere: bool = False
    """Whether its keys work in the other windows, too."""

    def key_sequences(self) -> list[QKeySequence]:
        """The usual one first."""
        return [QKeySequence(one) for one in (self.keys if isinstance(self.keys, tuple) else (self.keys,))]


_SEPARATOR = None
_RECENT = "recent"
# Keys that a field for text has for itself on one of the systems, such as Ctrl+D, Ctrl+E and Ctrl+K, are not used.
_MENUS: dict[str, tuple[_Entry | str | None, ...]] = {
    "&File": (
        _Entry("new_chat", "&New chat", "Ctrl+N"),
        _Entry("new_temporary_chat", "New &temporary chat", "Ctrl+Shift+N"),
        _SEPARATOR,
        _Entry("open_models", "&Open models…", "Ctrl+O"),
        _Entry("open_server", "Open a model on a ser&ver…", "Ctrl+Shift+O"),
        _RECENT,
        _Entry("load_guide", "Slipstream &Guide"),
        _Entry("load_starter", "Starter mode&l"),
        _SEPARATOR,
        _Entry("show_library", "&Model library…", "Ctrl+L", everywhere=True),
        _Entry("get_models", "Get mo&dels…", "Ctrl+Shift+L", everywhere=True),
        _SEPARATOR,
        _Entry("import_chats", "&Import chats…"),
        _Entry("export_chat", "&Export chat…"),
        _Entry("export_all_chats", "Export &all chats…"),
        _Entry("print_chat", "&Print chat…", _KEY.Print),
        _SEPARATOR,
        _Entry("show_settings", "&Settings…", "Ctrl+,", role=QAction.MenuRole.PreferencesRole, everywhere=True),
        _Entry("quit", "&Quit", "Ctrl+Q", role=QAction.MenuRole.QuitRole, everywhere=True),
    ),
    "&Edit": (
        _Entry("undo", "&Undo", _KEY.Undo),
        _Entry("redo", "&Redo", _KEY.Redo),
        _SEPARATOR,
        _Entry("cut", "Cu&t", _KEY.Cut),
        _Entry("copy", "&Copy", _KEY.Copy),
        _Entry("paste", "&Paste", _KEY.Paste),
        _Entry("select_all", "Select &all", _KEY.SelectAll),
        _SEPARATOR,
        _Entry("find_in_chat", "&Find in chat…", "Ctrl+F"),
        _Entry("find_next", "Find &next", ("F3", "Ctrl+G")),
        _Entry("find_previous", "Find pre&vious", ("Shift+F3", "Ctrl+Shift+G")),
        _SEPARATOR,
        _Entry("search_chats", "&Search all chats", "Ctrl+Shift+F"),
    ),
    "&View": (
        _Entry("toggle_chats", "&Chats", "Ctrl+B", checkable=True),
        _Entry("toggle_speed", "&Speed panel", "Ctrl+.", checkable=True),
        _Entry("chat_settings", "Chat s&ettings", "Ctrl+I", checkable=True),
        _SEPARATOR,
        _Entry("zoom_in", "Zoom &in", ("Ctrl++", "Ctrl+="), everywhere=True),
        _Entry("zoom_out", "Zoom &out", "Ctrl+-", everywhere=True),
        _Entry("zoom_reset", "Actual si&ze", "Ctrl+0", everywhere=True),
        _SEPARATOR,
        _Entry("show_drafted", "Show &drafted tokens", "Ctrl+Shift+D", checkable=True),
        _Entry("wrap_code", "&Wrap long lines of code", checkable=True),
        _SEPARATOR,
        _Entry("show_trash", "&Trash"),
        _SEPARATOR,
        _Entry("next_pane", "&Next pane", "F6"),
        _Entry("previous_pane", "&Previous pane", "Shift+F6"),
    ),
    "&Chat": (
        _Entry("attach_files", "Attac&h files…", ATTACH_KEYS),
        _SEPARATOR,
        _Entry("stop", "&Stop", "Esc"),
        _Entry("stop_thinking", "Stop &thinking", "Ctrl+T"),
        _Entry("regenerate", "&Regenerate", "Ctrl+R"),
        _Entry("continue_answer", "&Continue answer", "Ctrl+Shift+Return"),
        _Entry("branch_chat", "&Branch into a new chat", "Ctrl+Shift+B"),
        _SEPARATOR,
        _Entry("rename_chat", "Rena&me chat…", "F2"),
        _Entry("delete_chat", "&Delete chat"),
        _Entry("undo_chat", "&Undo delete", "Ctrl+Shift+T"),
        _SEPARATOR,
        _Entry("previous_message", "&Previous message", "Alt+Up"),
        _Entry("next_message", "&Next message", "Alt+Down"),
        _Entry("focus_composer", "&Write a message", "Shift+Esc"),
        _SEPARATOR,
        _Entry("compare_last", "Compare &last answer", "Ctrl+Shift+R"),
        _Entry("compare_prompts", "C&ompare prompts…"),
        _SEPARATOR,
        _Entry("measure_plain", "Me&asure speed without a draft"),
    ),
    "&Help": (
        _Entry("show_shortcuts", "&Keyboard shortcuts", ("F1", "Ctrl+/")),
        _Entry("explain", "&What's this?"),
        _Entry("show_figures", "What the &figures mean"),
        _Entry("open_logs", "Open &log folder"),
        _SEPARATOR,
        _Entry("show_about", "&About Slipstream", role=QAction.MenuRole.AboutRole),
    ),
}


class Menus(QObject):
    """Fills a menu bar with the window's actions, which its buttons use too. `AppCommands` says what most of them do.

    An action can be used once it is connected.

    Signals:
        recent_chosen: Place of the recent pair that was chosen.
    """

    recent_chosen = Signal(int)

    def __init__(self, bar: QMenuBar, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._actions: dict[str, QAction] = {}
        self._menus: dict[str, QMenu] = {}
        self._recent = QMenu("&Recent pairs", bar)
        self._recent.triggered.connect(lambda action: self.recent_chosen.emit(action.data()))
        for title, entries in _MENUS.items():
            self._menus[_plain(title)] = menu = bar.addMenu(title)
            for entry in entries:
                if isinstance(entry, _Entry):
                    self._actions[entry.name] = action = self._make(entry)
                    menu.addAction(action)
                elif entry is _RECENT:
                    menu.addMenu(self._recent)
                else:
                    menu.addSeparator()
        self.set_recent([])

    def _make(self, entry: _Entry) -> QAction:
        action = QAction(entry.text, self, checkable=entry.checkable, menuRole=entry.role, enabled=False)
        action.setShortcuts(entry.key_sequences())
        if entry.everywhere:
            action.setShortcutContext(Qt.ShortcutContext.ApplicationShortcut)
        return action

    def connect_action(self, name: str, act: Callable[[], object]) -> None:
        """Call ``act`` when this action is chosen, which it can be from now on."""
        self._actions[name].triggered.connect(lambda _checked: act())
        self._actions[name].setEnabled(True)

    def menu(self, title: str) -> QMenu:
        """The menu with this title, such as ``Edit``."""
        return self._menus[title]

    def action(self, name: str) -> QAction:
        return self._actions[name]

    def set_recent(self, titles: Sequence[str]) -> None:
        """List the recent pairs, newest first."""
        self._recent.clear()
        for place, title in enumerate(titles):
            self._recent.addAction(title.replace("&", "&&")).setData(place)
        self._recent.setEnabled(bool(titles))

    def shortcuts(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """For each menu its title and what has keys in it: pairs of name and keys, as this system writes them."""
        return [
            (title, [(_plain(action.text()), keys) for action in menu.actions() if (keys := keys_of(action))])
            for title, menu in self._menus.items()
        ]


def keys_of(action: QAction) -> str:
    """The keys of an action, ``F3 or Ctrl+G``; empty where it has none."""
    return " or ".join(native(one) for one in action.shortcuts())


def native(keys: str | QKeySequence) -> str:
    """Keys as this system writes them, ``Ctrl+N``, or ``⌘N`` on a Mac; with the usual name of the Enter key."""
    return QKeySequence(keys).toString(QKeySequence.SequenceFormat.NativeText).replace("Return", "Enter")


def _plain(text: str) -> str:
    return text.replace("&", "").rstrip("…")
