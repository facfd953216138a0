"""The style sheet of the application, built from a theme and a zoom. All pixels in it but hairlines grow with the zoom.

Roles a widget can take with `theme.set_role`:

- labels: ``heading`` (bold; also ``heading-accent``, ``heading-warning``, ``heading-bad``), ``quiet``, ``good``,
  ``warning``, ``bad``
- buttons: ``primary`` (filled with the accent), ``flat`` (no outline until the pointer is there), ``link``, ``small``,
  ``section`` (opens a part of a dialog), ``fold`` (opens a part of a message), ``chip`` (in a ``chip``)
- fields: ``bare`` (no box of its own)
- frames: ``card`` (raised, rounded), ``chip`` (rounded, small), ``popup`` (over everything), ``bar`` (raised, hairline
  below), ``side`` (raised), ``reading`` (the plain surface), ``line`` (a hairline)
"""

from __future__ import annotations

import re
from string import Template

from PySide6.QtCore import QDir
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication

from app.ui.widgets import icons
from app.ui.widgets.theme import RADIUS, Theme, contrast, mix, notifier

_PIXELS = re.compile(r"(?<![\w#])(-?(?!1px)\d+)px")
_INDICATOR = 14
"""Size of a radio button and of the handle of a slider, in pixels."""
_SHEET = Template("""
QWidget { color: $text; }
QWidget:disabled { color: $disabled; }
QMainWindow, QDialog, QMessageBox { background: $surface; }
QToolTip { color: $text; background: $raised; border: 1px solid $control_line; padding: 6px; }

QAbstractButton, QTabBar, QLineEdit { icon-size: 16px; }
QDialogButtonBox { dialogbuttonbox-buttons-have-icons: 0; }
QLabel, QCheckBox, QRadioButton { background: transparent; }
QLabel[role="heading"] { font-weight: 600; }
QLabel[role="heading-accent"] { font-weight: 600; color: $accent; }
QLabel[role="heading-warning"] { font-weight: 600; color: $warning; }
QLabel[role="heading-bad"] { font-weight: 600; color: $bad; }
QLabel[role="quiet"] { color: $quiet; }
QLabel[role="good"] { color: $good; }
QLabel[role="warning"] { color: $warning; }
QLabel[role="bad"] { color: $bad; }

QFrame[role="card"] { background: $raised; border: 1px solid $line; border-radius: ${radius}px; }
QFrame[role="card"]:focus { border-color: $focus_line; }
QFrame[role="popup"] { background: $surface; border: 1px solid $control_line; }
QFrame[role="bar"] { background: $raised; border: none; border-bottom: 1px solid $line; }
QFrame[role="side"], QWidget[role="side"] { background: $raised; border: none; }
QFrame[role="reading"], QWidget[role="reading"] { background: $surface; border: none; }
QFrame[role="chip"] { background: $surface; border: 1px solid $line; border-radius: ${radius}px; }
QFrame[role="line"] { background: $line; border: none; max-height: 1px; min-height: 1px; }

QPushButton {
    background: $surface; border: 1px solid $control_line; border-radius: 6px;
    padding: 5px 12px; min-height: 18px;
}
QPushButton:hover { background: $hover; }
QPushButton:pressed { background: $pressed; }
QPushButton:focus { border-color: $focus_line; }
QPushButton:disabled { border-color: $line; color: $disabled; }
QPushButton:default { border-color: $accent; }
QPushButton[role="primary"] { background: $accent; border-color: $accent; color: $on_accent; font-weight: 600; }
QPushButton[role="primary"]:hover { background: $accent_hover; }
QPushButton[role="primary"]:focus { border: 3px double $on_accent; padding: 3px 10px; }
QPushButton[role="primary"]:disabled { background: $pressed; border-color: $pressed; color: $disabled; }
QPushButton[role="flat"], QToolButton {
    background: transparent; border: 1px solid transparent; border-radius: 6px; padding: 4px 8px;
}
QToolButton { padding: 4px; }
QPushButton[role="flat"]:hover, QToolButton:hover { background: $hover; }
QPushButton[role="flat"]:pressed, QToolButton:pressed { background: $pressed; }
QPushButton[role="flat"]:checked, QToolButton:checked {
    background: $selection; border-color: $selection_line;
}
QPushButton[role="flat"]:focus, QToolButton:focus { border-color: $focus_line; }
QPushButton[role="small"] { padding: 2px 10px; }
QPushButton[role="link"] {
    background: transparent; border: 1px solid transparent; border-radius: 4px; padding: 1px 2px; color: $accent;
    text-align: left;
}
QPushButton[role="link"]:hover { text-decoration: underline; }
QPushButton[role="link"]:focus { border-color: $focus_line; }
QPushButton[role="link"]:disabled { color: $disabled; }
QToolButton[role="section"] { font-weight: 600; padding: 4px 8px 4px 2px; }
QToolButton[role="section"]:checked { background: transparent; border-color: transparent; }
QToolButton[role="section"]:focus { border-color: $focus_line; }
QToolButton[role="section"]:hover { background: $hover; }
QPushButton[role="fold"] {
    background: transparent; border: 1px solid transparent; padding: 2px 8px 2px 0px; color: $quiet; text-align: left;
}
QPushButton[role="fold"]:focus { border-color: $focus_line; }
QPushButton[role="fold"]:hover { background: $hover; color: $text; }
QPushButton[role="chip"], QToolButton[role="chip"] {
    background: transparent; border: 1px solid transparent; border-radius: 6px; padding: 2px 6px; min-height: 18px;
}
QToolButton[role="chip"] { padding: 2px; icon-size: 12px; }
QPushButton[role="chip"]:hover, QToolButton[role="chip"]:hover { background: $hover; }
QPushButton[role="chip"]:focus, QToolButton[role="chip"]:focus { border-color: $focus_line; }
QPushButton[role="chip"]:disabled { color: $quiet; }
QToolButton::menu-indicator, QPushButton::menu-indicator { image: none; width: 0px; }

QLineEdit, QPlainTextEdit, QTextEdit, QSpinBox, QDoubleSpinBox, QComboBox {
    background: $surface; border: 1px solid $control_line; border-radius: 6px; padding: 4px 6px;
    selection-background-color: $accent; selection-color: $on_accent; placeholder-text-color: $quiet;
}
QLineEdit, QSpinBox, QDoubleSpinBox, QComboBox { min-height: 18px; }
QLineEdit:focus, QPlainTextEdit:focus, QTextEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QComboBox:focus {
    border-color: $focus_line;
}
QLineEdit:disabled, QPlainTextEdit:disabled, QSpinBox:disabled, QDoubleSpinBox:disabled, QComboBox:disabled {
    background: $raised; border-color: $line;
}
QLineEdit[role="bare"], QPlainTextEdit[role="bare"], QTextEdit[role="bare"], QTextBrowser {
    background: transparent; border: none; padding: 0px;
}
QSpinBox, QDoubleSpinBox { padding: 4px 20px 4px 6px; }
QSpinBox::up-button, QDoubleSpinBox::up-button, QSpinBox::down-button, QDoubleSpinBox::down-button {
    subcontrol-origin: border; width: 18px; border: none; background: transparent; margin: 1px;
}
QSpinBox::up-button, QDoubleSpinBox::up-button { subcontrol-position: top right; border-top-right-radius: 5px; }
QSpinBox::down-button, QDoubleSpinBox::down-button {
    subcontrol-position: bottom right; border-bottom-right-radius: 5px;
}
QSpinBox::up-button:hover, QSpinBox::down-button:hover, QDoubleSpinBox::up-button:hover,
QDoubleSpinBox::down-button:hover { background: $hover; }
QSpinBox::up-arrow, QDoubleSpinBox::up-arrow { image: url(slipstream:up.svg); width: 9px; height: 9px; }
QSpinBox::down-arrow, QDoubleSpinBox::down-arrow { image: url(slipstream:down.svg); width: 9px; height: 9px; }
QComboBox { padding-right: 22px; }
QComboBox::drop-down { subcontrol-origin: border; subcontrol-position: center right; width: 22px; border: none; }
QComboBox::down-arrow { image: url(slipstream:down.svg); width: 10px; height: 10px; }

QCheckBox, QRadioButton { spacing: 8px; padding: 2px 2px 2px 0px; border: 1px solid transparent; border-radius: 4px; }
QCheckBox:focus, QRadioButton:focus { border-color: $focus_line; }
QCheckBox::indicator, QRadioButton::indicator {
    width: 14px; height: 14px; border: 1px solid $control_line; background: $surface;
}
QCheckBox::indicator { border-radius: 4px; }
QRadioButton::indicator { border-radius: ${round}px; }
QCheckBox::indicator:hover, QRadioButton::indicator:hover { border-color: $accent; }
QCheckBox::indicator:checked { background: $accent; border-color: $accent; image: url(slipstream:check-$ink.svg); }
QRadioButton::indicator:checked { background: $accent; border-color: $accent; image: url(slipstream:dot-$ink.svg); }
QCheckBox::indicator:disabled, QRadioButton::indicator:disabled { border-color: $line; background: $raised; }

QSlider:horizontal { min-height: 22px; }
QSlider::groove:horizontal { height: 4px; border-radius: 2px; background: $track; }
QSlider::sub-page:horizontal { height: 4px; border-radius: 2px; background: $accent; }
QSlider::handle:horizontal {
    width: 14px; height: 14px; margin: -6px 0px; border-radius: ${round}px;
    background: $surface; border: 1px solid $accent;
}
QSlider::handle:horizontal:hover { background: $selection; }
QSlider::handle:horizontal:focus { background: $accent; }
QSlider:disabled { color: $disabled; }
QSlider::sub-page:horizontal:disabled { background: $track; }
QSlider::handle:horizontal:disabled { border-color: $line; background: $raised; }

QProgressBar { background: $track; border: none; border-radius: 2px; min-height: 4px; max-height: 4px; }
QProgressBar::chunk { background: $accent; border-radius: 2px; }

QListView, QTreeView { outline: none; selection-background-color: $selection; selection-color: $text; }
QListView { background: $surface; border: 1px solid $control_line; }
QWidget QListView, QWidget QTreeView { background: transparent; border: none; }
QComboBox QAbstractItemView { background: $surface; border: 1px solid $control_line; padding: 4px; }
QListView::item { border: 1px solid transparent; border-radius: 6px; padding: 3px 5px; min-height: 20px; }
QTreeView::item {
    border: none; border-top: 1px solid transparent; border-bottom: 1px solid transparent; padding: 2px 6px;
}
QListView::item:hover, QTreeView::item:hover { background: $hover; }
QListView::item:selected, QTreeView::item:selected {
    background: $selection; color: $text; border-color: $selection_line;
}
QListView::item:focus { border-color: $focus_line; }
QTreeView::item:focus { border-top-color: $focus_line; border-bottom-color: $focus_line; }
QHeaderView { background: transparent; }
QHeaderView::section {
    background: transparent; color: $quiet; border: none; border-bottom: 1px solid $line; padding: 4px 6px;
}

QTabWidget::pane { border: none; border-top: 1px solid $line; }
QTabBar { background: $raised; }
QTabBar::tab {
    background: transparent; color: $quiet; border: 1px solid transparent; border-bottom: 2px solid transparent;
    padding: 7px 15px 8px 15px;
}
QTabBar::tab:selected { color: $text; border-bottom-color: $accent; }
QTabBar::tab:hover { color: $text; background: $hover; }
QTabBar::tab:focus { color: $accent; border-color: $focus_line; }

QScrollArea { background: transparent; border: none; }
QScrollArea > QWidget > QWidget { background: transparent; }
QScrollBar:vertical { background: transparent; width: 12px; margin: 0px; }
QScrollBar:horizontal { background: transparent; height: 12px; margin: 0px; }
QScrollBar::handle:vertical { background: $control_line; border-radius: 3px; min-height: 32px; margin: 2px 3px; }
QScrollBar::handle:horizontal { background: $control_line; border-radius: 3px; min-width: 32px; margin: 3px 2px; }
QScrollBar::handle:hover { background: $quiet; }
QScrollBar::handle:horizontal:focus { background: $focus_line; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0px; height: 0px; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }

QSplitter::handle { background: $line; }
QSplitter::handle:horizontal { width: 1px; }
QSplitter::handle:vertical { height: 1px; }
QSplitter::handle:hover { background: $accent; }

QMenuBar { background: $raised; padding: 2px; }
QMenuBar::item { background: transparent; padding: 3px 7px; border: 1px solid transparent; border-radius: 4px; }
QMenuBar::item:selected, QMenuBar::item:pressed { background: $hover; border-color: $selection_line; }
QMenu { background: $surface; border: 1px solid $control_line; padding: 4px; }
QMenu::item { padding: 4px 23px 4px 11px; border: 1px solid transparent; border-radius: 4px; }
QMenu::item:selected { background: $selection; color: $text; border-color: $selection_line; }
QMenu::item:disabled { color: $disabled; }
QMenu::separator { height: 1px; background: $line; margin: 4px 8px; }
QMenu::indicator { width: 14px; height: 14px; margin-left: 6px; }
QMenu::indicator:checked { image: url(slipstream:check-$menu_ink.svg); }
""")


def build(theme: Theme, zoom: int = 100) -> str:
    """The style sheet for one theme at a zoom in percent. Registers the search path its images come from."""
    QDir.setSearchPaths("slipstream", [str(icons.FOLDER)])
    white = QColor("#ffffff")
    template = Template(_PIXELS.sub(lambda found: f"{round(int(found[1]) * zoom / 100)}px", _SHEET.template))
    return template.substitute(
        {role: getattr(theme, role).name() for role in _SHEET.get_identifiers() if hasattr(theme, role)},
        disabled=mix(theme.surface, theme.text, 0.5).name(),
        accent_hover=mix(theme.accent, theme.text, 0.15).name(),
        track=mix(theme.surface, theme.text, 0.14).name(),
        ink="white" if contrast(white, theme.accent) >= contrast(QColor("#000000"), theme.accent) else "black",
        menu_ink="white" if theme.is_dark else "black",
        radius=round(RADIUS * zoom / 100),
        round=round(_INDICATOR * zoom / 100) // 2
        + 1,  # including its border; if it is larger, Qt draws no round corners at all
    )


def apply(application: QApplication) -> None:
    """Style the whole application, and keep doing so when the system changes.

    Fusion on every system, because it is the only style that draws a style sheet the same way everywhere.
    """
    application.setStyle("Fusion")
    notifier().apply_to(application, build)
