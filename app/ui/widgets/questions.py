"""Questions and warnings in boxes of plain text, dialogs for files, and the system's notifications."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QFileDialog, QMessageBox, QSystemTrayIcon, QWidget

from app.storage.files import with_suffix
from app.ui.widgets import icons
from app.ui.widgets.tasks import Lane
from app.words import printable

PATIENCE_MS = 500
"""Milliseconds; a dialog doesn't open on a drive that takes longer to respond."""
_Role = QMessageBox.ButtonRole


def ask(
    parent: QWidget,
    title: str,
    text: str,
    *,
    details: str = "",
    lossy: Mapping[str, Callable[[], object]] | None = None,
    safe: Mapping[str, Callable[[], object]] | None = None,
    icon: QMessageBox.Icon = QMessageBox.Icon.Question,
) -> None:
    """Ask, and call the function of the pressed button: ``lossy`` ones delete something, ``safe`` ones don't. Cancel,
    which Esc and Enter choose, does nothing."""
    box = _box(icon, parent, title, text)
    box.setInformativeText(details)
    for choices, role in ((safe, _Role.AcceptRole), (lossy, _Role.DestructiveRole)):
        for name, act in (choices or {}).items():
            box.addButton(name, role).clicked.connect(lambda _checked=False, act=act: act())
    box.setDefaultButton(box.addButton(QMessageBox.StandardButton.Cancel))
    box.open()


def ask_where_to_save(parent: QWidget, title: str, proposal: Path, name: str, save: Callable[[Path], object]) -> None:
    """Ask for a file of the format ``name``, and call ``save`` with it. A name typed without a suffix gets that of
    ``proposal``; replacing a file is then asked here, as the dialog doesn't know of it."""
    suffix = proposal.suffix
    chosen, _ = QFileDialog.getSaveFileName(parent, title, str(proposal), f"{name} (*{suffix})")
    if not chosen:
        return
    path = with_suffix(Path(chosen), suffix)
    if path != Path(chosen) and path.exists():
        text = f"{printable(path.name)} already exists. Replace it?"
        ask(parent, title, text, lossy={"Replace": lambda: save(path)})
    else:
        save(path)


def choose_folder(parent: QWidget, title: str, folder: str, chosen: Callable[[str], object]) -> None:
    """Ask for a folder, starting in ``folder``, and call ``chosen`` with its path."""
    dialog = QFileDialog(parent, title)
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    dialog.fileSelected.connect(chosen)
    open_in_folder(dialog, folder)


def open_in_folder(dialog: QFileDialog, folder: str) -> None:
    """Open ``dialog`` in ``folder`` if that responds in time, else where the system chooses. It is deleted when it is
    closed."""
    patience = QTimer(dialog, singleShot=True, interval=PATIENCE_MS)

    def open_it(is_there: bool) -> None:
        if not patience.isActive():
            return  # it is open, or was closed
        patience.stop()
        if is_there:
            dialog.setDirectory(folder)
        dialog.open()

    def give_up() -> None:
        patience.start()
        open_it(False)

    patience.timeout.connect(give_up)
    dialog.finished.connect(patience.stop)
    dialog.finished.connect(dialog.deleteLater)
    patience.start()
    Lane(dialog, "folder of a dialog").submit(lambda: bool(folder) and Path(folder).is_dir(), open_it)


def warn(parent: QWidget, title: str, text: str) -> None:
    """Show something that must be read."""
    _box(QMessageBox.Icon.Warning, parent, title, text).open()


def _box(icon: QMessageBox.Icon, parent: QWidget, title: str, text: str) -> QMessageBox:
    box = QMessageBox(icon, title, text, parent=parent)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return box


SHOWN_MS = 10_000


class Notifier(QObject):
    """Notifies only while no window of the app is active. One for the whole app, because each has a tray icon."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._clicked: Callable[[], object] | None = None
        self._icon: QSystemTrayIcon | None = None

    def tell(self, title: str, text: str, clicked: Callable[[], object]) -> None:
        """Show a notification, if the system has them. Plain text; ``clicked`` is called when the user clicks it."""
        if QApplication.activeWindow() is not None or not QSystemTrayIcon.isSystemTrayAvailable():
            return
        if self._icon is None:
            # Qt's way to the system's notifications; the icon is only there while there is a notification.
            self._icon = QSystemTrayIcon(icons.application(), self)
            self._icon.messageClicked.connect(self._on_clicked)
            self._icon.activated.connect(self._on_clicked)
            QGuiApplication.instance().applicationStateChanged.connect(self._on_state_changed)  # type: ignore[union-attr]
        self._clicked = clicked  # the last one's, because the system doesn't say which was clicked
        self._icon.show()
        # On Linux the text may contain markup, so a model's text has to be escaped; the title never does.
        text = html.escape(text, quote=False) if sys.platform == "linux" else text
        self._icon.showMessage(title, text, icons.application(), SHOWN_MS)

    def clear(self) -> None:
        """The user has seen it, or the app ends."""
        if self._icon is not None:
            self._icon.hide()

    @Slot()
    def _on_clicked(self) -> None:
        if self._clicked is not None:
            self._clicked()

    @Slot(Qt.ApplicationState)
    def _on_state_changed(self, state: Qt.ApplicationState) -> None:
        if state is Qt.ApplicationState.ApplicationActive:
            self.clear()
