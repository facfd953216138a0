"""The menus of the list of chats: what can be done with chats, with a folder, and with the list itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QInputDialog, QMenu, QWidget

from app.chats.model import Chat, Folder
from app.models.text import shortened, visible
from app.ui.chat.list.commands import ListCommands
from app.ui.chat.list.rows import SORTS, ChatSort, FolderRow, count_text

PIN_KEYS = "Ctrl+Shift+P"
MOVE_KEYS = "Ctrl+Shift+M"
_LONGEST_NAME = 60


def fill_chats_menu(
    menu: QMenu,
    chats: Sequence[Chat],
    folders: Sequence[Folder],
    commands: ListCommands,
    rename: Callable[[], object],
    parent: QWidget,
) -> None:
    """What can be done with these chats. ``parent``: of a question that comes after the menu."""
    ids, several = [chat.id for chat in chats], f" {count_text(len(chats))}" if len(chats) > 1 else ""
    if not several:
        _add(menu, "&Rename…", rename, "F2")
    pins = any(chat.pinned_at is None for chat in chats)
    _add(menu, f"{'&Pin' if pins else 'Un&pin'}{several}", lambda: commands.pin_chats(ids, pins), PIN_KEYS)
    fill_move_menu(menu.addMenu(f"&Move{several} to\t{MOVE_KEYS}"), chats, folders, commands, parent)
    _add(menu, f"&Export{several}…", lambda: commands.export_chats(ids))
    menu.addSeparator()
    _add(menu, f"&Delete{several}", lambda: commands.delete_chats(ids), "Del")


def fill_move_menu(
    menu: QMenu, chats: Sequence[Chat], folders: Sequence[Folder], commands: ListCommands, parent: QWidget
) -> None:
    """Where these chats can go."""
    ids, places = [chat.id for chat in chats], {chat.folder_id for chat in chats}
    for folder in folders:
        action = _add(menu, _name(folder), partial(commands.move_chats, ids, folder.id))
        action.setEnabled(places != {folder.id})
    if folders:
        menu.addSeparator()
    _add(menu, "&No folder", lambda: commands.move_chats(ids, None)).setEnabled(places != {None})
    _add(menu, "New &folder…", lambda: ask_for_folder(parent, commands, ids))


def fill_folder_menu(
    menu: QMenu,
    row: FolderRow,
    commands: ListCommands,
    rename: Callable[[], object],
    open_it: Callable[[bool], object],
) -> None:
    """What can be done with a folder."""
    _add(menu, "&Collapse" if row.is_open else "&Expand", lambda: open_it(not row.is_open))
    _add(menu, "&Rename…", rename, "F2")
    menu.addSeparator()
    # Its chats stay, and it can be undone.
    _add(menu, "&Delete folder", lambda: commands.delete_folder(row.folder.id), "Del")


def fill_list_menu(
    menu: QMenu, sort: ChatSort, commands: ListCommands, sort_by: Callable[[ChatSort], object], parent: QWidget
) -> None:
    """What can be done with the list."""
    _add(menu, "New &folder…", lambda: ask_for_folder(parent, commands, ()))
    menu.addSeparator()
    for name, text in SORTS.items():
        action = _add(menu, text, partial(sort_by, name))
        action.setCheckable(True)
        action.setChecked(name == sort)


def ask_for_folder(parent: QWidget, commands: ListCommands, chat_ids: Sequence[str]) -> None:
    """Ask for the name of a new folder for these chats."""
    dialog = QInputDialog(parent)
    dialog.setWindowTitle("New folder")
    dialog.setLabelText("Name of the folder:")
    dialog.setOkButtonText("Create")
    dialog.textValueSelected.connect(lambda name: commands.create_folder(name, chat_ids) if name.strip() else None)
    dialog.finished.connect(dialog.deleteLater)
    dialog.open()


def _name(folder: Folder) -> str:
    return shortened(visible(folder.name), _LONGEST_NAME).replace("&", "&&")


def _add(menu: QMenu, text: str, act: Callable[[], object], keys: str = "") -> QAction:
    """``keys`` are only named: the list listens to them itself, and a menu's would be ambiguous."""
    return menu.addAction(f"{text}\t{keys}" if keys else text, act)
