"""A button with a menu of models to choose from; those that cannot be chosen are grey and say why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QMenu, QPushButton, QWidget

from app.ui.widgets.controls import plain_tooltip

MOST, MOST_GREY = 30, 12
"""Entries that can be chosen and that cannot; more would fill the screen, or hide those that can."""


@dataclass(frozen=True)
class Pick:
    """One model of the menu."""

    path: str
    text: str
    can_choose: bool = True
    reason: str = ""
    """Shown behind the text of what cannot be chosen, and as a tooltip."""


class ModelPicker(QPushButton):
    """Signals `chosen` with the path of a model."""

    chosen = Signal(str)

    def __init__(self, text: str, name: str, parent: QWidget | None = None) -> None:
        super().__init__(f"{text} ▾", parent)
        self.setAutoDefault(False)
        self.setAccessibleName(name)
        self._menu = QMenu(self)
        self._menu.setToolTipsVisible(True)
        self.setMenu(self._menu)
        self.show_picks([], "")

    def show_picks(self, picks: Sequence[Pick], otherwise: str) -> None:
        """``otherwise`` stands in the menu where there are none."""
        self._menu.clear()
        choosable = [pick for pick in picks if pick.can_choose]
        grey = [pick for pick in picks if not pick.can_choose]
        for pick in choosable[:MOST]:
            self._add(pick)
        if len(choosable) > MOST:
            self._menu.addAction(f"{len(choosable) - MOST} more in the model library").setEnabled(False)
        if choosable and grey:
            self._menu.addSeparator()
        for pick in grey[:MOST_GREY]:
            self._add(pick)
        if len(grey) > MOST_GREY:
            self._menu.addAction(f"{len(grey) - MOST_GREY} more that do not fit").setEnabled(False)
        if not picks and otherwise:
            self._menu.addAction(otherwise).setEnabled(False)

    def _add(self, pick: Pick) -> None:
        text = pick.text if pick.can_choose else f"{pick.text}: {pick.reason}"
        action = self._menu.addAction(text.replace("&", "&&"))
        action.setToolTip(plain_tooltip("\n".join(part for part in (pick.path, pick.reason) if part)))
        action.setEnabled(pick.can_choose)
        action.triggered.connect(partial(self._on_triggered, pick.path))

    def _on_triggered(self, path: str, _checked: bool = False) -> None:
        self.chosen.emit(path)
