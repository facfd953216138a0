"""Settings → Tools: the user's servers and their tools, the built-in tools, and the tools that are always allowed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
from PySide6.QtCore import QSignalBlocker, Qt, QTimer, Slot
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QCheckBox, QFileDialog, QFrame, QHBoxLayout, QLayout, QPlainTextEdit, QVBoxLayout, QWidget

from app import words
from app.system import KnownError
from app.tools.config_files import MOST_TEXT
from app.tools.entries import command_line
from app.tools.known import PROGRAMS, KnownServer, find_program, known_servers
from app.tools.messages import BUILT_IN, ServerChanged, ServerEntry, ServerTool
from app.tools.offered import DISPLAY_NAME, OfferedTool
from app.tools.permissions import AllowedTool
from app.ui.context import AppContext
from app.ui.tools.server_dialog import ServerDialog
from app.ui.tools.service import ToolService
from app.ui.widgets import theme
from app.ui.widgets.controls import (
    CARD_MARGINS,
    TOP,
    ElidedLabel,
    Section,
    breakable,
    clear_layout,
    column,
    label,
    plain_tooltip,
    push_button,
    row,
    show_text,
    small_button,
)
from app.ui.widgets.focus import announce
from app.ui.widgets.forms import Fields
from app.ui.widgets.questions import ask, open_in_folder, warn
from app.ui.widgets.tasks import Lane
from app.ui.widgets.theme import SPACING

_WHAT = (
    "MCP servers give the model tools. A server is a program on this computer or an address on the network. No tool "
    "runs until you allow it, and each chat can have its own choice of tools."
)
_OFFLINE = (
    "Slipstream works offline, so servers at addresses aren't used. Programs on this computer are started anyway, and "
    "may use the network themselves."
)
_NO_KEYRING = (
    "This computer has no keyring, so the servers' secrets are only kept until Slipstream closes. A server can also "
    "take a secret from an environment variable: ${env:NAME}."
)
_OWN = "These need no server. They can only read files and folders that you attached to the chat."
_KNOWN = "These are downloaded the first time they start."
_ALLOWED = "These tools run without asking. If a tool changes, you are asked again."
_MOST = "After that, the model has to answer with what it has."
_STATES = {"starting": "starting…", "ready": "ready", "failed": "failed", "stopped": "not running"}
_ROLES = {"starting": "quiet", "ready": "good", "failed": "bad", "stopped": "quiet"}
_LONGEST_DESCRIPTION = 400
_LONGEST_NAME = 40
_LOG_LINES = 8


class ToolsPage(QWidget):
    """All changes take effect at once.

    Attributes:
        rows: The row of each server, by name.
        own: The switches of the built-in tools, by name.
        dialog: The dialog that was last opened to add or edit servers.
    """

    def __init__(self, ctx: AppContext) -> None:
        super().__init__()
        self._settings, self._service = ctx.settings, ctx.tools
        self._lane = Lane(self, "tool settings")
        self.rows: dict[str, ServerRow] = {}
        self.own: dict[str, QCheckBox] = {}
        self.dialog: ServerDialog | None = None
        self._fields = Fields(self._on_limit_changed)
        self._most = self._fields.whole("most_tool_calls", "Maximum tool calls per answer", 1, 1000)
        self._offline = label(_OFFLINE, "warning", wraps=True)
        self._no_keyring = label(_NO_KEYRING, "warning", wraps=True)
        self._missing = label(role="warning", wraps=True)
        self._servers, self._known, self._own, self._allowed = (column(gap=-1) for _ in range(4))
        self._shown_allowed: list[str] | None = None
        self._lay_out()
        self._service.changed.connect(self._show)
        ctx.settings.changed.connect(self._show)
        ctx.closing.callback(self._lane.close)

    def refresh(self) -> None:
        known = known_servers()
        programs = {one.program for one in known}
        self._lane.submit(
            lambda: {name for name in programs if find_program(name) is None},
            lambda missing: self._show_known(known, missing),
        )
        for tool in self._service.all_tools():
            if tool.server == BUILT_IN and tool.tool.name not in self.own:
                self._own.addLayout(self._own_switch(tool))
        self._show()

    @Slot()
    def _show(self) -> None:
        service = self._service
        self._fields.show(self._settings.values)
        self._offline.setVisible(self._settings.values.offline)
        self._no_keyring.setVisible(not service.has_keyring)
        if self.rows.keys() != service.entries.keys():
            self._show_servers()
        for name, one in self.rows.items():
            one.show_server(service.entries[name], service.servers.get(name))
        for name, switch in self.own.items():
            with QSignalBlocker(switch):
                switch.setChecked(name in self._settings.values.built_in_tools)
        allowed = service.permissions.all()
        if list(allowed) != self._shown_allowed:
            self._shown_allowed = list(allowed)
            clear_layout(self._allowed)
            for key, tool in allowed.items():
                self._allowed.addLayout(self._allowed_row(key, tool))
            if not allowed:
                self._allowed.addWidget(label("No tools yet.", "quiet"))
            self._set_tab_order()

    def _show_servers(self) -> None:
        """Servers that stay keep their widgets."""
        for name in self.rows.keys() - self._service.entries.keys():
            self.rows.pop(name).deleteLater()
        for name in self._service.entries.keys() - self.rows.keys():
            self.rows[name] = ServerRow(self._service, lambda entry: self._open(entry=entry), self._set_tab_order)
        self.rows = dict(sorted(self.rows.items(), key=lambda one: one[0].casefold()))
        for place, one in enumerate(self.rows.values()):
            self._servers.insertWidget(place, one)
        self._set_tab_order()

    # ------------------------------------------------------------ what the user does

    @Slot()
    def add(self, text: str = "") -> None:
        """Ask for servers to add."""
        self._open(text or "")

    def _open(self, text: str = "", entry: ServerEntry | None = None) -> None:
        self.dialog = ServerDialog(self._service, self.window(), text, entry)
        self.dialog.open()
        self.dialog.text.setFocus()

    @Slot()
    def _on_import(self) -> None:
        dialog = QFileDialog(self, "Import servers from another app", "", "JSON (*.json);;All files (*)")
        dialog.fileSelected.connect(self.import_file)
        open_in_folder(dialog, str(Path.home()))

    def import_file(self, path: str) -> None:
        """Ask whether to add the servers in another app's file."""

        def read() -> str:
            try:
                with Path(path).open(encoding="utf-8-sig", errors="replace") as file:
                    return file.read(MOST_TEXT + 1)
            except OSError as error:
                raise KnownError(f"The file can't be read: {error.strerror or error}.") from error

        self._lane.submit(read, self.add, lambda error: warn(self.window(), "Import servers", str(error)))

    def _on_limit_changed(self) -> None:
        self._settings.values.most_tool_calls = self._most.value()
        self._settings.save_soon()

    def _on_own(self, name: str, is_on: bool) -> None:
        values = self._settings.values
        values.built_in_tools = [one for one in self.own if (is_on if one == name else one in values.built_in_tools)]
        self._settings.apply()

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        buttons = row(
            push_button("Add servers…", self.add),
            push_button("Import…", self._on_import, name="Import servers from another app"),
            None,
        )
        servers = column(self._offline, self._no_keyring, self._servers, buttons)
        sections = (
            ("Servers", _WHAT, servers),
            ("Well-known servers", _KNOWN, column(self._missing, self._known)),
            ("Built-in tools in all chats", _OWN, self._own),
            ("Always allowed", _ALLOWED, self._allowed),
        )
        parts = [
            part
            for title, text, content in sections
            for part in (label(title, "heading"), label(text, "quiet", wraps=True), content, 2 * SPACING)
        ]
        most = label("Maximum tool calls per answer:", buddy=self._most)
        limit = row(most, self._most, (label(_MOST, "quiet", wraps=True), 1), gap=3 * SPACING)
        column(*parts, limit, None, margins=5 * SPACING, on=self)

    def _own_switch(self, tool: OfferedTool) -> QVBoxLayout:
        name = tool.tool.name
        switch = self.own[name] = QCheckBox(tool.tool.title or name)
        switch.toggled.connect(partial(self._on_own, name))
        return column(switch, _described(tool.tool), gap=0)

    def _allowed_row(self, key: str, tool: AllowedTool) -> QHBoxLayout:
        shown = f"{words.printable(tool.tool)} · {words.printable(tool.server or DISPLAY_NAME)}"
        withdraw = small_button("Revoke", lambda: self._service.permissions.withdraw(key), name=f"Revoke {shown}")
        return row((label(breakable(shown), wraps=True), 1), (withdraw, TOP))

    def _show_known(self, known: list[KnownServer], missing: set[str]) -> None:
        clear_layout(self._known)
        for one in known:
            self._known.addLayout(self._known_row(one))
        problems = [f"{name} isn't on this computer. It comes with {PROGRAMS[name]}." for name in sorted(missing)]
        show_text(self._missing, " ".join(problems))
        self._set_tab_order()

    def _known_row(self, one: KnownServer) -> QHBoxLayout:
        about = label(f"{one.about} Needs {one.program}.", "quiet", wraps=True)
        button = small_button("Add…", lambda: self.add(json.dumps(one.config, indent=2)), name=f"Add {one.title}")
        return row((column(label(one.title), about, gap=0), 1), (button, TOP))

    def _set_tab_order(self) -> None:
        """In reading order; Qt's default is the order in which the widgets were made."""
        focusable = [one for one in _widgets_in(self.layout()) if one.focusPolicy() & Qt.FocusPolicy.TabFocus]
        for first, second in pairwise(focusable):
            QWidget.setTabOrder(first, second)


def _widgets_in(layout: QLayout | None) -> Iterator[QWidget]:
    """All widgets, from top to bottom and from left to right."""
    items = [layout.itemAt(place) for place in range(layout.count())] if layout else []
    for item in filter(None, items):
        if (widget := item.widget()) is not None:
            yield widget
        yield from _widgets_in(widget.layout() if widget else item.layout())


class ServerRow(QFrame):
    """One server: its switch, its state, what it runs, its tools and its log.

    Attributes:
        switch, edit, restart, remove: What the user can change.
        tools: The switches of its tools, by name; made when the user first opens the list.
    """

    def __init__(
        self, service: ToolService, edit: Callable[[ServerEntry], object], arranged: Callable[[], object]
    ) -> None:
        """``arranged`` is called when its widgets have changed."""
        super().__init__()
        self._arranged = arranged
        self._service = service
        self._entry = ServerEntry(name="?")
        self._server: ServerChanged | None = None
        self.tools: dict[str, QCheckBox] = {}
        self._shown_tools: list[ServerTool] | None = None
        self.switch, self._state = QCheckBox(), label()
        self._runs = ElidedLabel("quiet", keeps_end=True)
        self._problem = label(role="bad", wraps=True, selectable=True)
        self.edit = small_button("Edit…", lambda: edit(self._entry))
        self.restart = small_button("Restart", lambda: service.start(self._entry.name))
        self.remove = small_button("Remove", self._on_remove)
        self._log_text = QPlainTextEdit(
            readOnly=True, tabChangesFocus=True, lineWrapMode=QPlainTextEdit.LineWrapMode.NoWrap
        )
        self._tool_list, tools = column(gap=SPACING, margins=(2 * SPACING, 0, 0, 0)), QWidget()
        tools.setLayout(self._tool_list)
        self._tools, self._log = Section("Tools", tools), Section("Log", self._log_text)
        self._tools.button.toggled.connect(self._show_tools)
        self._log.button.toggled.connect(lambda: QTimer.singleShot(0, self, self._show_end))
        self.switch.toggled.connect(self._on_switched)
        theme.set_role(self, "card")
        theme.follow_zoom(self, self._fit)
        buttons = row(self.edit, self.restart, self.remove, None)
        parts = (row((self.switch, 1), self._state), self._runs, self._problem, buttons, self._tools, self._log)
        column(*parts, margins=CARD_MARGINS, on=self)

    def show_server(self, entry: ServerEntry, server: ServerChanged | None) -> None:
        """Show this entry and the latest state of the server."""
        if (entry, server) == (self._entry, self._server):
            return
        self._entry, self._server = entry, server
        name, state = words.printable(entry.name), server.state if server else "stopped"
        self.switch.setToolTip(plain_tooltip(name))
        with QSignalBlocker(self.switch):
            self.switch.setText(_on_switch(name))
            self.switch.setChecked(entry.is_on)
        for button in (self.edit, self.restart, self.remove):
            button.setAccessibleName(f"{button.text().strip('…')} {name}")
        self.restart.setEnabled(entry.is_on)
        if self._state.text() != _STATES[state] and self.isVisible():
            announce(self, f"{name}: {_STATES[state]}")
        self._state.setText(_STATES[state] if entry.is_on else "off")
        theme.set_role(self._state, _ROLES[state])
        self._runs.setText(command_line(entry))
        self._runs.setToolTip(plain_tooltip(command_line(entry)))
        show_text(self._problem, breakable(words.visible(server.message)) if server and state != "ready" else "")
        self._show_tools()
        lines = server.log if server else []
        self._log.setVisible(bool(lines))
        self._log.set_summary(lines[-1] if lines else "")
        if (text := "\n".join(map(words.visible, lines))) != self._log_text.toPlainText():
            self._log_text.setPlainText(text)
            self._log_text.moveCursor(QTextCursor.MoveOperation.End)

    @Slot()
    def _show_tools(self) -> None:
        tools, left_out = (self._server.tools, self._server.left_out) if self._server else ([], 0)
        off = [tool for tool in tools if tool.name in self._entry.off]
        self._tools.setVisible(bool(tools))
        more = f", {left_out} left out" if left_out else ""
        self._tools.set_summary(f"{len(tools) - len(off)} of {len(tools)} on{more}")
        if not self._tools.button.isChecked():
            return
        if self._shown_tools is not tools:
            self._shown_tools = tools
            clear_layout(self._tool_list)
            self.tools = {}
            for tool in tools:
                self._tool_list.addLayout(self._tool_switch(tool))
            self._arranged()
        for name, switch in self.tools.items():
            with QSignalBlocker(switch):
                switch.setChecked(name not in self._entry.off)

    def _tool_switch(self, tool: ServerTool) -> QVBoxLayout:
        switch = self.tools[tool.name] = QCheckBox(_on_switch(tool.title or tool.name))
        switch.toggled.connect(partial(self._on_tool_switched, tool.name))
        return column(switch, _described(tool), gap=0)

    def _on_tool_switched(self, name: str, is_on: bool) -> None:
        off = [one for one in self._entry.off if one != name] + ([] if is_on else [name])
        self._service.put(msgspec.structs.replace(self._entry, off=off))

    @Slot()
    def _show_end(self) -> None:
        """Of the log, once it has its size."""
        bar = self._log_text.verticalScrollBar()
        bar.setValue(bar.maximum())

    @Slot(bool)
    def _on_switched(self, is_on: bool) -> None:
        self._service.put(msgspec.structs.replace(self._entry, is_on=is_on))

    @Slot()
    def _on_remove(self) -> None:
        name = self._entry.name
        text = f"Remove the server {words.printable(name)}, its secrets, and what you have allowed it to do?"
        ask(self.window(), "Remove a server", text, lossy={"Remove": lambda: self._service.remove(name)})

    def _fit(self) -> None:
        self._log_text.setFont(theme.monospace())
        self._log_text.setFixedHeight(_LOG_LINES * self._log_text.fontMetrics().lineSpacing() + 6 * SPACING)


def _on_switch(name: str) -> str:
    return words.printable(name, _LONGEST_NAME).replace("&", "&&")


def _described(tool: ServerTool) -> QWidget:
    """The description of a tool, shown below its switch."""
    description = words.visible(words.shortened(tool.description.strip(), _LONGEST_DESCRIPTION))
    text = label(breakable(description), "quiet", wraps=True)
    text.setContentsMargins(6 * SPACING, 0, 0, 0)
    if not text.text():
        text.hide()
    return text
