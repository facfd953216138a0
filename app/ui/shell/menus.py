"""The menu bar: every action of the window with its shortcut, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar

_STANDARD = QKeySequence.StandardKey


@dataclass(frozen=True)
class _Entry:
    """One line of a menu."""

    name: str
    text: str
    keys: str | QKeySequence.StandardKey = ""
    checkable: bool = False
    role: QAction.MenuRole = QAction.MenuRole.NoRole


_SEPARATOR = None
_RECENT = "recent"
_MENUS: dict[str, tuple[_Entry | str | None, ...]] = {
    "&File": (
        _Entry("new_chat", "&New chat", "Ctrl+N"),
        _SEPARATOR,
        _Entry("open_models", "&Open models…", "Ctrl+O"),
        _RECENT,
        _Entry("load_guide", "Slipstream &Guide"),
        _SEPARATOR,
        _Entry("show_library", "&Model library…", "Ctrl+M"),
        _Entry("get_models", "&Get models…", "Ctrl+G"),
        _SEPARATOR,
        _Entry("export_chat", "&Export chat…"),
        _SEPARATOR,
        _Entry("show_settings", "&Settings…", "Ctrl+,", role=QAction.MenuRole.PreferencesRole),
        _Entry("quit", "&Quit", "Ctrl+Q", role=QAction.MenuRole.QuitRole),
    ),
    "&Edit": (
        _Entry("copy", "&Copy", _STANDARD.Copy),
        _SEPARATOR,
        _Entry("search_chats", "&Search chats", "Ctrl+F"),
        _Entry("rename_chat", "&Rename chat…", "F2"),
        _Entry("delete_chat", "&Delete chat"),
    ),
    "&View": (
        _Entry("toggle_chats", "&Chats", "Ctrl+B", checkable=True),
        _Entry("toggle_speed", "&Speed panel", "Ctrl+.", checkable=True),
        _SEPARATOR,
        _Entry("show_drafted", "Show &drafted tokens", "Ctrl+D", checkable=True),
    ),
    "&Chat": (
        _Entry("stop", "&Stop", "Esc"),
        _Entry("regenerate", "&Regenerate", "Ctrl+R"),
        _SEPARATOR,
        _Entry("compare_last", "&Compare last answer", "Ctrl+Shift+R"),
        _Entry("compare_prompts", "Compare &prompts…"),
        _SEPARATOR,
        _Entry("measure_plain", "&Measure plain speed"),
    ),
    "&Help": (
        _Entry("show_shortcuts", "&Keyboard shortcuts"),
        _Entry("show_figures", "What the &figures mean"),
        _Entry("open_logs", "Open &log folder"),
        _SEPARATOR,
        _Entry("show_about", "&About Slipstream", role=QAction.MenuRole.AboutRole),
    ),
}


class Menus(QObject):
    """Fills a menu bar with the window's actions, which its buttons use too. `AppCommands` says what they do.

    Signals:
        recent_chosen: Place of the recent pair that was chosen.
    """

    recent_chosen = Signal(int)

    def __init__(self, bar: QMenuBar, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._actions: dict[str, QAction] = {}
        self._recent = QMenu("&Recent pairs", bar)
        self._recent.triggered.connect(lambda action: self.recent_chosen.emit(action.data()))
        for title, entries in _MENUS.items():
            menu = bar.addMenu(title)
            for entry in entries:
                if isinstance(entry, _Entry):
                    self._actions[entry.name] = action = QAction(
                        entry.text,
                        self,
                        shortcut=QKeySequence(entry.keys),
                        checkable=entry.checkable,
                        menuRole=entry.role,
                    )
                    menu.addAction(action)
                elif entry is _RECENT:
                    menu.addMenu(self._recent)
                else:
                    menu.addSeparator()
        self.set_recent([])

    def action(self, name: str) -> QAction:
        return self._actions[name]

    def set_recent(self, titles: Sequence[str]) -> None:
        """List the recent pairs, newest first."""
        self._recent.clear()
        for place, title in enumerate(titles):
            self._recent.addAction(title.replace("&", "&&")).setData(place)
        self._recent.setEnabled(bool(titles))

    def shortcuts(self) -> list[tuple[str, str]]:
        """What each shortcut does: pairs of name and keys."""
        return [
            (action.text().replace("&", "").rstrip("…"), keys)
            for action in self._actions.values()
            if (keys := action.shortcut().toString(QKeySequence.SequenceFormat.NativeText))
        ]
