"""File → Open a model on a server…: an address, a key, a test, a model."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSignalBlocker, Qt, Slot
from PySide6.QtWidgets import (
    QComboBox,
    QCompleter,
    QDialog,
    QDialogButtonBox,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QWidget,
)

from app.protocol.remote import MAX_ADDRESS_CHARACTERS, MAX_KEY_CHARACTERS, ServedModel, Server
from app.ui.models import server_text
from app.ui.models.server_text import INTRODUCTION, TITLE, Verdict
from app.ui.widgets import theme
from app.ui.widgets.controls import explain, guard_wheel, label, show_text
from app.ui.widgets.layouts import DIALOG_MARGINS, column, row
from app.ui.widgets.theme import SPACING

_WIDTH = 560
_FOUND_ROWS = 4


class ServerDialog(QDialog):
    """Shows what is typed and what came of it; its presenter does the rest.

    Attributes:
        address, key, model, found: Its fields.
        test, find_button, remove_key, open_button, local: Its buttons. ``local`` leads to the models on this computer.
    """

    def __init__(self, known: Sequence[str] = (), parent: QWidget | None = None) -> None:
        """``known``: addresses that were used before."""
        super().__init__(parent)
        self.setWindowTitle(TITLE)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setMinimumWidth(400)
        self._make_fields(known)
        self._lay_out()
        self.show_models([], "")
        self.show_verdict(Verdict(""))
        self.show_warning("")
        self.show_found(None)
        self.resize(_WIDTH, self.sizeHint().height())
        self.address.setFocus()

    def _make_fields(self, known: Sequence[str]) -> None:
        self.address = QLineEdit(placeholderText="http://127.0.0.1:8080", maxLength=MAX_ADDRESS_CHARACTERS)
        explain(self.address, "The address of the server, with or without /v1.")
        completer = QCompleter(list(known), self.address)
        completer.setFilterMode(Qt.MatchFlag.MatchContains)
        self.address.setCompleter(completer)
        self.key = QLineEdit(
            echoMode=QLineEdit.EchoMode.Password,
            placeholderText="Only if the server asks for one",
            maxLength=MAX_KEY_CHARACTERS,
        )
        self.model = QComboBox(
            minimumContentsLength=8,
            sizeAdjustPolicy=QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon,
        )
        guard_wheel(self.model)
        self.found = QListWidget()
        self.found.setAccessibleName("Servers on this computer")
        self.remove_key = QPushButton("Remove", autoDefault=False)
        self.remove_key.setAccessibleName("Remove the key")
        self.remove_key.hide()
        self.test = QPushButton("Test", autoDefault=False)
        explain(self.test, "Connects to the server and says what it is. Nothing of a chat is sent.")
        self.find_button = QPushButton("Find servers on this computer", autoDefault=False)
        explain(self.find_button, "Asks the ports that such programs usually listen on. Nothing leaves this computer.")
        self.open_button = QPushButton("Open", default=True)
        theme.set_role(self.open_button, "primary")
        self.local = QPushButton("Models on this computer…", autoDefault=False)

    def _lay_out(self) -> None:
        self._key_note = label("", "quiet", wraps=True, scale=0.9)
        self._warning = label("", "warning", wraps=True)
        self._none_found = label("", "quiet", wraps=True)
        self._verdict = label("", wraps=True, bold=True)
        self._lines = label("", wraps=True)
        for one in (self._verdict, self._lines):
            one.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._model_part = QWidget()
        column(*self._named("Model", self.model), gap=SPACING, on=self._model_part)
        box = QDialogButtonBox()
        box.addButton(self.local, QDialogButtonBox.ButtonRole.ResetRole)
        box.addButton(QDialogButtonBox.StandardButton.Cancel).setText("Cancel")
        box.addButton(self.open_button, QDialogButtonBox.ButtonRole.AcceptRole)
        box.rejected.connect(self.reject)
        column(
            label(INTRODUCTION, "quiet", wraps=True),
            2 * SPACING,
            *self._named("Address", self.address),
            self._warning,
            row(self.find_button, None),
            self._none_found,
            self.found,
            2 * SPACING,
            *self._named("Key", self.key, self.remove_key),
            self._key_note,
            2 * SPACING,
            row(self.test, None),
            self._verdict,
            self._lines,
            self._model_part,
            None,
            2 * SPACING,
            box,
            gap=SPACING,
            margins=DIALOG_MARGINS,
            on=self,
        )

    def _named(self, name: str, field: QWidget, *others: QWidget) -> list[QWidget]:
        title = label(name, "heading")
        title.setBuddy(field)
        field.setAccessibleName(name)
        line = QWidget()
        row((field, 1), *others, on=line)
        return [title, line]

    # ------------------------------------------------------------ what is shown

    def show_address(self, address: str, model: str) -> None:
        """Begin with this server and this model of it."""
        self.address.setText(address)
        if model:
            self.show_models([ServedModel(id=model)], model)

    def show_warning(self, text: str) -> None:
        show_text(self._warning, text)

    def show_key_note(self, text: str, *, is_stored: bool) -> None:
        """``is_stored``: there is a key that can be removed."""
        self._key_note.setText(text)
        self.remove_key.setVisible(is_stored)
        self.key.setPlaceholderText("•••••• (stored)" if is_stored else "Only if the server asks for one")

    def show_verdict(self, verdict: Verdict) -> None:
        role = "quiet" if verdict.mood == "plain" else verdict.mood
        show_text(self._verdict, verdict.text, role)
        show_text(self._lines, "\n".join(filter(None, verdict.lines)), "quiet")
        self._grow()

    def verdict(self) -> str:
        """All that the last test says, in lines; empty if there was none."""
        return "\n".join(filter(None, (self._verdict.text(), self._lines.text())))

    def key_note(self) -> str:
        """What is said about the key."""
        return self._key_note.text()

    def show_models(self, models: Sequence[ServedModel], chosen: str) -> None:
        """There is something to choose only if there are several."""
        with QSignalBlocker(self.model):
            self.model.clear()
            for one in models:
                self.model.addItem(server_text.model_title(one), one.id)
            self.model.setCurrentIndex(self.model.findData(chosen))
        self._model_part.setVisible(len(models) > 1)
        self._grow()

    def chosen_model(self) -> str:
        """The id of the chosen model; empty if none is."""
        return self.model.currentData() or ""

    def show_found(self, servers: Sequence[Server] | None) -> None:
        """Servers on this computer; ``None``: nobody has looked for any."""
        self.found.clear()
        for one in servers or ():
            item = QListWidgetItem(server_text.server_title(one), self.found)
            item.setData(Qt.ItemDataRole.UserRole, one.address)
        rows = min(max(self.found.count(), 1), _FOUND_ROWS)
        self.found.setFixedHeight(rows * (self.fontMetrics().height() + 3 * SPACING) + 2 * SPACING)
        self.found.setVisible(bool(servers))
        show_text(self._none_found, server_text.NONE_FOUND if servers is not None and not servers else "")
        self._grow()

    def set_busy(self, what: str) -> None:
        """``what`` is going on, in a few words; empty when it is done."""
        for button in (self.test, self.find_button, self.open_button):
            button.setEnabled(not what)
        if what:
            self.show_verdict(Verdict(what))

    @Slot()
    def _grow(self) -> None:
        """As high as what is shown needs, never less high than before."""
        if self.isVisible():
            layout = self.layout()
            assert layout is not None
            layout.activate()
            wanted = max(self.height(), layout.totalHeightForWidth(self.width()))
            self.resize(self.width(), wanted)
