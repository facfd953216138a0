"""What the user can do, each thing once: menus, buttons and views name an action, and `Actions` carries it out.

The table itself is `app.ui.shell.all_actions`. An action is disabled until the app is there, because the window is
painted before that. Must never import another part of the app, so that every view can have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QAbstractButton, QMenu, QMenuBar

App = TypeVar("App")
Keys: TypeAlias = str | QKeySequence.StandardKey
"""A combination of keys, or what the system uses for a purpose."""


class Choice(NamedTuple):
    """One line of a submenu that depends on what is there."""

    text: str
    """Empty for a line between others."""
    values: tuple[Any, ...] = ()
    """Given to the action after those that the choices are for."""


@dataclass(frozen=True)
class Action(Generic[App]):
    """A command of the window."""

    name: str
    text: str
    """As a menu has it; empty for what has no button and no line of a menu."""
    do: Callable[[App], Callable[..., object]]
    """Finds what is called with the values given to `Actions.run`."""
    keys: Keys | tuple[Keys, ...] = ()
    """The usual one first. In menus only; elsewhere the view listens to them itself."""
    enabled: Callable[[App], bool] | None = None
    """``None``: always. Asked at `Actions.refresh`."""
    button: str = ""
    """What stands on a button, where it isn't the text."""
    description: str = ""
    """What a screen reader says of a button, where its text alone says too little; also its tooltip."""
    choices: Callable[[App], Callable[..., Sequence[Choice]]] | None = None
    """Makes it a submenu: finds what is asked for its lines when its menu is opened."""
    shown: Callable[[], bool] | None = None
    """Asked when its menu is opened; ``None``: always."""
    checkable: bool = False
    checked: Callable[[App], bool] | None = None
    """Asked at `Actions.refresh`; ``None``: whoever shows it knows, and sets it."""
    role: QAction.MenuRole = QAction.MenuRole.NoRole
    repeats: bool = True
    """Whether holding the keys down repeats it."""
    everywhere: bool = False
    """Whether its keys work in the other windows, too."""

    def key_sequences(self) -> list[QKeySequence]:
        return [QKeySequence(one) for one in (self.keys if isinstance(self.keys, tuple) else (self.keys,))]

    def on_button(self) -> str:
        return self.button or self.text.replace("&", "")


Menu: TypeAlias = Sequence[Action[Any] | None]
"""``None`` is a separator."""


class Actions(QObject):
    """The actions of a main window. Names that the table doesn't have raise `KeyError`."""

    def __init__(self, menus: Mapping[str, Menu], elsewhere: Mapping[str, Menu], parent: QObject | None = None) -> None:
        """``menus`` by their titles; ``elsewhere``: what is in no menu of the menu bar, by where it is instead."""
        super().__init__(parent)
        self._app: Any = None
        self._menus = menus
        self._places = {**menus, **elsewhere}
        every = [one for place in self._places.values() for one in place if one is not None]
        self._table = {one.name: one for one in every}
        assert len(self._table) == len(every), "an action is there twice"
        in_menus = [one for menu in menus.values() for one in menu if one is not None and one.choices is None]
        self._qactions = {one.name: self._made(one) for one in in_menus}
        self._submenus: dict[str, QMenu] = {}

    def begin(self, app: object) -> None:
        """Everything is there: actions can be used from now on."""
        self._app = app
        self.refresh()

    def _made(self, one: Action[Any]) -> QAction:
        action = QAction(
            one.text, self, checkable=one.checkable, menuRole=one.role, enabled=False, autoRepeat=one.repeats
        )
        action.setShortcuts(one.key_sequences())
        if one.everywhere:
            action.setShortcutContext(Qt.ShortcutContext.ApplicationShortcut)
        action.triggered.connect(lambda _checked: self.run(one.name))
        return action

    # ------------------------------------------------------------ what can be done

    def run(self, name: str, *values: object) -> Any:
        """Carry out an action and give back what it returns; nothing happens while the app isn't there yet."""
        do = self._table[name].do
        return None if self._app is None else do(self._app)(*values)

    def is_enabled(self, name: str) -> bool:
        one = self._table[name]
        return self._app is not None and (one.enabled is None or one.enabled(self._app))

    @Slot()
    def refresh(self) -> None:
        """Something changed on which it depends what can be done now."""
        for name, action in self._qactions.items():
            action.setEnabled(self.is_enabled(name))
            if (checked := self._table[name].checked) is not None and self._app is not None:
                action.setChecked(checked(self._app))

    def choices(self, name: str, *values: object) -> Sequence[Choice]:
        """What the submenu of an action would offer for these values."""
        find = self._table[name].choices
        return () if self._app is None or find is None else find(self._app)(*values)

    # ------------------------------------------------------------ how it is shown

    def names(self) -> Iterator[str]:
        return iter(self._table)

    def qaction(self, name: str) -> QAction:
        """The line of the menu bar."""
        return self._qactions[name]

    def text(self, name: str) -> str:
        """What stands on a button for it."""
        return self._table[name].on_button()

    def description(self, name: str) -> str:
        """What a screen reader says of a button for it."""
        return self._table[name].description or self.text(name)

    def keys(self, name: str) -> str:
        """Its keys as this system writes them, ``F3 or Ctrl+G``; empty where it has none."""
        return " or ".join(native(one) for one in self._table[name].key_sequences() if not one.isEmpty())

    def connect_button(self, button: QAbstractButton, name: str, *values: object) -> None:
        """Have a button carry out an action; it gets what a screen reader says, and a tooltip where that says more."""
        said, keys = self.description(name), self.keys(name)
        button.setAccessibleName(said)
        if said != button.text() or keys:
            button.setToolTip(f"{said} ({keys})" if keys else said)
        if self._table[name].checkable:
            action = self._qactions[name]
            button.clicked.connect(lambda _checked: action.trigger())
            button.clicked.connect(lambda _checked: button.setChecked(action.isChecked()))  # it may not be possible yet
        else:
            button.clicked.connect(lambda _checked: self.run(name, *values))

    def add(self, menu: QMenu, name: str, *values: object, text: str = "") -> QAction:
        """Put a line into a menu of a view. ``text``: where it says more than the usual one. Keys are only named: the
        view listens to them itself, and a menu's would be ambiguous."""
        text, keys = text or self._table[name].text, self.keys(name)
        return menu.addAction(f"{text}\t{keys}" if keys else text, partial(self.run, name, *values))

    def fill(self, menu: QMenu, name: str, *values: object) -> None:
        """Put the choices of an action into a menu."""
        for choice in self.choices(name, *values):
            if choice.text:
                menu.addAction(choice.text.replace("&", "&&"), partial(self.run, name, *values, *choice.values))
            else:
                menu.addSeparator()

    def fill_menu_bar(self, bar: QMenuBar) -> dict[str, QMenu]:
        """Put the menus into the menu bar; gives them back by their titles, such as ``Edit``."""
        made: dict[str, QMenu] = {}
        for title, entries in self._menus.items():
            made[plain(title)] = menu = bar.addMenu(title)
            for one in entries:
                if one is None:
                    menu.addSeparator()
                elif one.choices is not None:
                    self._submenus[one.name] = menu.addMenu(one.text)
                    self._submenus[one.name].setEnabled(False)
                else:
                    menu.addAction(self._qactions[one.name])
            menu.aboutToShow.connect(partial(self._show, entries))
        return made

    def _show(self, entries: Menu) -> None:
        for one in entries:
            if one is not None and one.shown is not None:
                self._qactions[one.name].setVisible(one.shown())
            if one is not None and (submenu := self._submenus.get(one.name)) is not None:
                submenu.clear()
                self.fill(submenu, one.name)
                submenu.setEnabled(not submenu.isEmpty())

    def shortcuts(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """For each menu its title and what has keys in it: pairs of name and keys; then the same for other places."""
        listed = []
        for title, place in self._places.items():
            with_keys = [(one, keys) for one in place if one is not None and (keys := self.keys(one.name))]
            # A line of a menu says what it does; elsewhere its text stands beside what it is for.
            names = [plain(one.text) if title in self._menus else self.description(one.name) for one, _ in with_keys]
            listed.append((plain(title), list(zip(names, (keys for _, keys in with_keys), strict=True))))
        return [(title, rows) for title, rows in listed if rows]


def native(keys: str | QKeySequence) -> str:
    """Keys as this system writes them, ``Ctrl+N``, or ``⌘N`` on a Mac; with the usual name of the Enter key."""
    return QKeySequence(keys).toString(QKeySequence.SequenceFormat.NativeText).replace("Return", "Enter")


def plain(text: str) -> str:
    """The text of a menu without its marks."""
    return text.replace("&", "").rstrip("…")
