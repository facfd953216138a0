"""Adds servers from what the user pastes, or edits one. Shows exactly what would be started before the user agrees."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QFrame,
    QHBoxLayout,
    QLayout,
    QLineEdit,
    QPlainTextEdit,
    QWidget,
)

from app import words
from app.tools.config_files import FoundServers, find_servers
from app.tools.entries import SECRET_VALUE, as_json, command_line, is_secret, with_inputs
from app.tools.known import PROGRAMS, find_program
from app.tools.messages import ServerEntry
from app.ui.tools.service import ToolService
from app.ui.widgets import theme
from app.ui.widgets.controls import (
    CARD_MARGINS,
    DIALOG_MARGINS,
    LEFT,
    breakable,
    clear_layout,
    column,
    label,
    named,
    push_button,
    row,
    scrolling,
    show_text,
    small_button,
)
from app.ui.widgets.forms import Whole
from app.ui.widgets.questions import choose_folder
from app.ui.widgets.tasks import Lane
from app.ui.widgets.theme import SPACING

_PASTE = "Paste a command, an address, or another app's mcp.json, which may list several servers."
_EDIT = "The same format as mcp.json in other apps. Leave ${secret} as it is to keep a stored secret."
_TEXT_LINES = 9
_TRUST = (
    "A command is a program that runs on this computer with your rights. A server at an address gets what the model "
    "passes to its tools. Only add servers that you trust."
)
_FOLDERS = "The server is told that it may use these folders, but a program can use others, too."
_LIMIT = "For one call, if the server reports no progress."
_OFFLINE = "It can't be used while Slipstream works offline (Settings → Network)."


class ServerDialog(QDialog):
    """Asks for servers to add or, with an ``entry``, for changes to it. ``text``: what the field contains at first.

    Attributes:
        text: The field that the user pastes into.
        add: The button that adds and starts the servers that are shown.
        inputs: The fields for values that an app's JSON asks for, by name.
    """

    def __init__(self, service: ToolService, parent: QWidget, text: str = "", entry: ServerEntry | None = None) -> None:
        super().__init__(parent)
        self._service, self._entry = service, entry
        self._found = FoundServers()
        self._programs: dict[str, bool] = {}
        """Whether each program is on this computer."""
        self._lane = Lane(self, "programs")
        self.inputs: dict[str, QLineEdit] = {}
        self.text = named(QPlainTextEdit(tabChangesFocus=True, placeholderText="uvx mcp-server-time"), "Servers")
        theme.follow_zoom(self.text, self._fit)
        self._problems = label(role="warning", wraps=True)
        self._fields, self._preview = column(gap=SPACING), column()
        self._limit = named(Whole(1, 86_400), "Time limit")
        self._folders: list[str] = list(entry.folders) if entry else []
        self._folder_rows = column(gap=SPACING)
        self.add = push_button("Add", self._on_accepted, role="primary")
        self.setWindowTitle(f"Edit {words.printable(entry.name)}" if entry else "Add servers")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._lay_out()
        self.text.textChanged.connect(self._on_typed)
        self.text.setPlainText(as_json(entry) if entry else text)
        self._on_typed()

    def _lay_out(self) -> None:
        more: list[QWidget | QLayout] = []
        if self._entry is not None:
            self._limit.setSuffix(" s")
            self._limit.setValue(round(self._entry.timeout_seconds))
            hint = label(_LIMIT, "quiet", wraps=True)
            more = [
                row(label("Time limit:", buddy=self._limit), self._limit, (hint, 1), gap=3 * SPACING),
                label("Folders", "heading"),
                label(_FOLDERS, "quiet", wraps=True),
                self._folder_rows,
            ]
            self._show_folders()
        content = QWidget()
        parts = (self._problems, self._fields, self._preview, *more)
        what = label(_EDIT if self._entry else _PASTE, wraps=True, buddy=self.text)
        column(what, self.text, *parts, None, on=content)
        box = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel)
        box.addButton(self.add, QDialogButtonBox.ButtonRole.ActionRole)
        box.rejected.connect(self.reject)
        trust = label(_TRUST, "quiet", wraps=True)
        column((scrolling(content), 1), trust, box, gap=3 * SPACING, margins=DIALOG_MARGINS, on=self)
        self.setMinimumWidth(420)
        self.resize(600, 560)

    # ------------------------------------------------------------ what was found

    @Slot()
    def _on_typed(self) -> None:
        taken = self._service.entries.keys() - ({self._entry.name} if self._entry else set())
        found = self._found = find_servers(self.text.toPlainText(), taken)
        if self._entry is not None and len(found.entries) > 1:
            found.problems.append("Only one server can be edited at a time.")
        show_text(self._problems, breakable("\n".join(found.problems)))
        if found.inputs.keys() != self.inputs.keys():
            self._make_inputs()
        for entry in found.entries:
            if entry.command and "${" not in entry.command and entry.command not in self._programs:
                self._look_for(entry.command)
        self._show_found()

    def _make_inputs(self) -> None:
        clear_layout(self._fields)
        self.inputs = {}
        for name, description in self._found.inputs.items():
            field = self.inputs[name] = named(QLineEdit(), description)
            if is_secret(f"{name} {description}", "x"):
                field.setEchoMode(QLineEdit.EchoMode.Password)
            field.textChanged.connect(self._show_found)
            self._fields.addWidget(label(breakable(f"{description}:"), wraps=True, buddy=field))
            self._fields.addLayout(row((field, 1), *self._choosing(description, field)))

    def _choosing(self, description: str, field: QLineEdit) -> list[QWidget]:
        if "folder" not in description.lower():
            return []
        return [push_button("Choose…", lambda: choose_folder(self, description, field.text(), field.setText))]

    def _look_for(self, program: str) -> None:
        def found(is_there: bool) -> None:
            self._programs[program] = is_there
            self._show_found()

        self._lane.submit(lambda: find_program(program) is not None, found)

    def _entries(self) -> list[ServerEntry]:
        values = {name: text for name, field in self.inputs.items() if (text := field.text().strip())}
        return [with_inputs(entry, values) for entry in self._found.entries]

    @Slot()
    def _show_found(self) -> None:
        entries = self._entries()
        clear_layout(self._preview)
        for entry in entries:
            self._preview.addWidget(self._card(entry))
        is_whole = all(field.text().strip() for field in self.inputs.values())
        self.add.setEnabled(is_whole and bool(entries) and (self._entry is None or len(entries) == 1))
        several = f"Add {len(entries)} servers" if len(entries) > 1 else "Add"
        self.add.setText("Save" if self._entry else several)

    def _card(self, entry: ServerEntry) -> QWidget:
        """Everything that this server would start or connect to."""
        line = label(breakable(command_line(entry)), wraps=True)
        line.setFont(theme.monospace())
        values = [*entry.env.items(), *entry.headers.items(), *([("folder", entry.cwd)] if entry.cwd else [])]
        given = ", ".join(f"{words.printable(name)}={_shown(name, value)}" for name, value in values)
        problem = _OFFLINE if entry.url and self._service.is_offline else ""
        if not self._programs.get(entry.command, True):
            source = f" It comes with {PROGRAMS[entry.command]}." if entry.command in PROGRAMS else ""
            problem = f"{words.printable(entry.command)} isn't on this computer.{source}"
        verb = "Connects to" if entry.url else "Starts"
        card = named(QFrame(), f"{verb} {command_line(entry)}")
        theme.set_role(card, "card")
        heading = row(label(words.printable(entry.name, 40), "heading"), (label(f"{verb.lower()}", "quiet"), 1))
        more = ((given and f"with {given}", "quiet"), (problem, "warning"))
        rest = [label(breakable(text), role, wraps=True) for text, role in more if text]
        column(heading, line, *rest, gap=SPACING, margins=CARD_MARGINS, on=card)
        return card

    def _fit(self) -> None:
        self.text.setFont(theme.monospace())
        self.text.setFixedHeight(_TEXT_LINES * self.text.fontMetrics().lineSpacing() + 6 * SPACING)

    # ------------------------------------------------------------ folders

    def _show_folders(self) -> None:
        clear_layout(self._folder_rows)
        for folder in self._folders:
            self._folder_rows.addLayout(self._folder_row(folder))
        button = push_button("Add a folder…", lambda: choose_folder(self, "Choose a folder", "", self._add_folder))
        self._folder_rows.addWidget(button, 0, LEFT)

    def _folder_row(self, folder: str) -> QHBoxLayout:
        shown = words.printable(folder, 300)
        remove = small_button("Remove", lambda: self._remove_folder(folder), name=f"Remove {shown}")
        return row((label(breakable(shown), wraps=True), 1), remove)

    def _add_folder(self, folder: str) -> None:
        self._folders = list(dict.fromkeys([*self._folders, folder]))
        self._show_folders()

    def _remove_folder(self, folder: str) -> None:
        self._folders.remove(folder)
        self._show_folders()

    @Slot()
    def _on_accepted(self) -> None:
        before, limit = self._entry, float(self._limit.value())
        for entry in self._entries():
            if before is None:
                self._service.put(entry)
                continue
            kept = {"is_on": before.is_on, "off": before.off, "folders": self._folders, "timeout_seconds": limit}
            self._service.put(msgspec.structs.replace(entry, **kept), instead_of=before.name)
        self.accept()


def _shown(name: str, value: str) -> str:
    """A value without its secrets: somebody may be looking over the user's shoulder."""
    value = SECRET_VALUE.sub("…", value)
    return "…" if is_secret(name, value) else words.printable(value, 10_000)
