"""The tools of the current chat: their button in the composer, and the paper clip's menu. Also what else servers offer:
prompts after "/", and resources, which are attached like files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter

import msgspec
from PySide6.QtCore import QEvent, QObject, QPoint, QStringListModel, Qt, Slot
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QComboBox, QCompleter, QDialog, QInputDialog, QMenu, QToolButton, QWidget, QWidgetAction
from shiboken6 import isValid

from app.tools.messages import CallEnded, ServerPrompt, ServerResource
from app.tools.offered import MOST_OFFERED, OfferedTool
from app.ui import notices
from app.ui.chat.attachments import SUBJECT, Attachments
from app.ui.chat.composer import Composer
from app.ui.chat.model import ChatModel
from app.ui.context import AppContext
from app.ui.engine.pair_names import why_no_tools
from app.ui.tools.service import ToolJob
from app.ui.widgets import theme as themes
from app.ui.widgets.controls import DIALOG_MARGINS, column, label, plain_tooltip, push_button, row, scrolling
from app.ui.widgets.questions import choose_folder
from app.ui.widgets.theme import SPACING
from app.words import printable, shortened, visible

READERS = (".read_file", ".list_folder")
"""The built-in tools that read the folders of a chat."""
_KEYS = Qt.Key.Key_Space, Qt.Key.Key_Return, Qt.Key.Key_Enter
_FEW = 12
"""Up to this many tools share one menu; if there are more, each server has its own."""
_LONGEST, _LONGEST_NOTE = 50, 300
_WIDTH = 320
"""The width of notes and forms, in pixels."""
_GENERAL = "This model's chat template has no known form for tool calls, so a general one is used."


class _Switches(QMenu):
    """Stays open while the user switches tools on and off."""

    def event(self, event: QEvent) -> bool:
        action, kinds = None, QEvent.Type
        if isinstance(event, QMouseEvent) and event.type() is not kinds.MouseMove:
            action = self.actionAt(event.position().toPoint())
        elif isinstance(event, QKeyEvent) and event.type() is kinds.KeyPress and event.key() in _KEYS:
            action = self.activeAction()
        if action is None or not action.isCheckable():
            return super().event(event)
        if event.type() is not kinds.MouseButtonRelease:  # which may belong to the click that opened the menu
            action.trigger()
        return True


class ChatTools(QObject):
    """One per window."""

    def __init__(self, ctx: AppContext, composer: Composer, attachments: Attachments) -> None:
        super().__init__(composer)
        self._ctx, self._tools, self._composer, self._attachments = ctx, ctx.tools, composer, attachments
        self._model = ctx.chats.current
        self.menu, self.clip_menu = _Switches(composer), QMenu(composer)
        self.menu.setToolTipsVisible(True)
        self.menu.aboutToShow.connect(self._fill)
        self.clip_menu.aboutToShow.connect(self._fill_clip_menu)
        composer.tools_button.setMenu(self.menu)
        for button in (composer.tools_button, composer.attach_button):
            button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self._awaited: list[tuple[ChatModel, str]] = []
        """Chats and servers that were starting when tools were chosen in the chat: their tools are turned on later."""
        self._prompts: dict[str, tuple[str, ServerPrompt]] = {}
        """By the line that shows them."""
        self._completer = QCompleter(QStringListModel(self), self)
        self._completer.setCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        self._completer.activated.connect(self._on_prompt_chosen)
        composer.editor.complete_with(self._completer)
        for signal in (ctx.tools.changed, ctx.settings.changed, ctx.loader.pair_changed):
            signal.connect(self._refresh)
        ctx.chats.follow(self._show, settings_changed=self._refresh)

    def _show(self, model: ChatModel) -> None:
        self._model = model
        self._refresh()

    @Slot()
    def _refresh(self) -> None:
        self._choose_awaited()
        on = self._tools.offered(self._model.settings)
        is_used = bool(on or self._tools.servers or self._model.settings.tools is not None)
        count = len(self._ctx.chats.answers.offered(self._model.settings))
        self._composer.show_tools(count if is_used else None, "\n".join(self._notes(on)))
        self._composer.attach_button.setMenu(self.clip_menu if is_used else None)  # type: ignore[arg-type]
        self._prompts = {
            f"/{printable(prompt.name, _LONGEST)}   {_about(prompt.title or prompt.description, name)}": (name, prompt)
            for name, server in self._tools.servers.items()
            for prompt in server.prompts
        }
        lines = self._completer.model()
        assert isinstance(lines, QStringListModel)
        lines.setStringList(list(self._prompts))

    # ------------------------------------------------------------ which tools are on

    def _notes(self, on: Sequence[OfferedTool]) -> list[str]:
        """What the user should know about this chat's tools, in sentences."""
        pair, gone = self._ctx.loader.pair(), ", ".join(visible(key).lstrip(".") for key in self._gone())
        is_general = pair is not None and pair.remote is None and pair.tool_format == "general"
        states = {"starting": "", "failed": ""}
        for state in states:
            names = [printable(name, _LONGEST) for name, one in self._tools.servers.items() if one.state == state]
            states[state] = shortened(", ".join(names), _LONGEST_NOTE)
        why = why_no_tools(self._model.settings.answer_format, pair)
        notes = {
            why: True,
            _GENERAL: is_general and bool(on) and not why,
            f"Only the first {MOST_OFFERED} tools are offered to the model.": len(on) >= MOST_OFFERED,
            f"Not available now: {shortened(gone, _LONGEST_NOTE)}.": bool(gone),
            f"Still starting: {states['starting']}.": bool(states["starting"]),
            f"Not running: {states['failed']}.": bool(states["failed"]),
        }
        return [note for note, is_so in notes.items() if note and is_so]

    def _gone(self) -> list[str]:
        """Tools that were chosen in this chat but aren't there now: they stay chosen."""
        known = {tool.key for tool in self._tools.all_tools()}
        return [key for key in self._model.settings.tools or [] if key not in known]

    def show(self, beside: QWidget | None = None) -> None:
        """Open the tool menu, at this widget or at the composer."""
        button = self._composer.tools_button
        place = beside or (button if button.isVisible() else self._composer)
        self.menu.popup(place.mapToGlobal(QPoint(0, place.height() if beside else 0)))

    @Slot()
    def _fill(self) -> None:
        menu, tools = self.menu, self._tools.all_tools()
        menu.clear()
        for inner in menu.findChildren(_Switches):
            inner.deleteLater()
        on = self._tools.offered(self._model.settings)
        for name, group in groupby(tools, attrgetter("server_name")):
            of_server, title = list(group), f"\u2068{printable(name, _LONGEST)}\u2069".replace("&", "&&")
            inner = menu
            if len(tools) <= _FEW:
                menu.addSeparator()
                menu.addAction(title).setEnabled(False)
            else:
                inner = _Switches(f"{title}   {sum(one in on for one in of_server)} of {len(of_server)}", menu)
                inner.setToolTipsVisible(True)
                menu.addMenu(inner)
            for tool in of_server:
                action = inner.addAction(printable(tool.tool.name, _LONGEST).replace("&", "&&"))
                action.setCheckable(True)
                action.setChecked(tool in on)
                action.setToolTip(plain_tooltip(shortened(tool.tool.description or tool.tool.name, 2 * _LONGEST_NOTE)))
                action.toggled.connect(partial(self._switch, tool))
        menu.addSeparator()
        menu.addAction("All", lambda: self._choose([tool.key for tool in tools] + self._gone(), self._starting()))
        menu.addAction("None", partial(self._choose, []))
        menu.addAction("As in Settings", partial(self._choose, None)).setEnabled(self._model.settings.tools is not None)
        if notes := self._notes(on):
            action, text = QWidgetAction(menu), label("\n".join(notes), "quiet", wraps=True, scale=0.9)
            text.setContentsMargins(11, SPACING, 11, SPACING)
            text.setMinimumWidth(themes.px(_WIDTH))
            action.setDefaultWidget(text)
            menu.addAction(action)
        menu.addSeparator()
        self._ctx.actions.add(menu, "tool_settings")

    def _switch(self, tool: OfferedTool, is_on: bool) -> None:
        keys = [one.key for one in self._tools.offered(self._model.settings) if one.key != tool.key]
        self._choose([*keys, *([tool.key] if is_on else []), *self._gone()], self._to_await())

    def _starting(self) -> list[str]:
        """The servers whose tools aren't known yet."""
        return [name for name, one in self._tools.servers.items() if one.state == "starting" and not one.tools]

    def _to_await(self) -> list[str]:
        """The servers of which all tools are on in this chat when they are known."""
        if self._model.settings.tools is None:
            return self._starting()
        return [name for model, name in self._awaited if model is self._model]

    def _choose_awaited(self) -> None:
        states = {name: one.state for name, one in self._tools.servers.items()}
        come = [one for one in self._awaited if states.get(one[1], "ready") == "ready"]
        self._awaited = [one for one in self._awaited if one not in come]
        for model, name in come:
            if isValid(model) and model.settings.tools is not None:
                keys = [tool.key for tool in self._tools.all_tools() if tool.server == name]
                tools = list(dict.fromkeys([*model.settings.tools, *keys]))
                model.set_settings(msgspec.structs.replace(model.settings, tools=tools))

    def _choose(self, keys: Sequence[str] | None, awaited: Sequence[str] = ()) -> None:
        tools = None if keys is None else list(keys)
        others = [one for one in self._awaited if one[0] is not self._model]
        self._awaited = [*others, *((self._model, name) for name in awaited)]
        self._model.set_settings(msgspec.structs.replace(self._model.settings, tools=tools))

    # ------------------------------------------------------------ the paper clip

    @Slot()
    def _fill_clip_menu(self) -> None:
        menu = self.clip_menu
        menu.clear()
        self._ctx.actions.add(menu, "attach_files")
        has_resources = any(server.resources for server in self._tools.servers.values())
        menu.addAction("Attach a resource from a server…", self.choose_resource).setEnabled(has_resources)
        menu.addAction("Let tools read a folder…", self.choose_folder)
        menu.addSeparator()
        self._ctx.actions.add(menu, "chat_tools")

    @Slot()
    def choose_folder(self) -> None:
        """Ask for a folder that the built-in tools may read in this chat, and turn them on."""
        model = self._model

        def chosen(folder: str) -> None:
            if isValid(model) and folder not in model.settings.folders:
                on = [tool.key for tool in self._tools.offered(model.settings)]
                tools = [*on, *(key for key in READERS if key not in on)]
                if model is self._model:
                    self._choose(tools, self._to_await())
                folders = [*model.settings.folders, folder]
                model.set_settings(msgspec.structs.replace(model.settings, tools=tools, folders=folders))

        choose_folder(self._composer.window(), "Let tools read a folder", "", chosen)

    @Slot()
    def choose_resource(self) -> None:
        """Ask which server resource to attach; the user types part of its name."""
        found: dict[str, tuple[str, ServerResource]] = {}
        for name, server in self._tools.servers.items():
            for one in server.resources:
                line = f"{printable(one.name or one.uri, _LONGEST)}   {_about(one.description, name)}"
                found[f"{line} · {printable(one.uri)}" if line in found else line] = name, one
        dialog = QInputDialog(self._composer.window())
        dialog.setWindowTitle("Attach a resource")
        dialog.setLabelText("Type part of its name:")
        dialog.setOkButtonText("Attach")
        dialog.setMinimumWidth(themes.px(_WIDTH))
        dialog.setComboBoxItems(list(found))
        dialog.setComboBoxEditable(True)
        box = dialog.findChild(QComboBox)
        if box is not None and (completer := box.completer()) is not None:
            completer.setFilterMode(Qt.MatchFlag.MatchContains)
            completer.setCompletionMode(QCompleter.CompletionMode.PopupCompletion)
        dialog.textValueSelected.connect(lambda text: self._attach(*found[text]) if text in found else None)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _attach(self, server: str, one: ServerResource) -> None:
        name = one.name or one.uri.rstrip("/").rpartition("/")[2] or one.uri
        self._wait(name, self._tools.read_resource(server, one.uri), self._attachments.attach_result)

    # ------------------------------------------------------------ prompts

    @Slot(str)
    def _on_prompt_chosen(self, line: str) -> None:
        server, prompt = self._prompts[line]
        self._composer.set_text("")
        get = partial(self._get_prompt, server, prompt)
        if prompt.arguments:
            _ask_for_arguments(prompt, self._composer.window(), get)
        else:
            get({})

    def _get_prompt(self, server: str, prompt: ServerPrompt, arguments: dict[str, str]) -> None:
        def done(model: ChatModel, name: str, ended: CallEnded) -> None:
            model.unsent.give_back(visible(ended.text), ())
            self._attachments.attach_result(model, name, ended, with_text=False)

        self._wait(prompt.name, self._tools.get_prompt(server, prompt.name, arguments), done)

    def _wait(self, name: str, job: ToolJob, done: Callable[[ChatModel, str, CallEnded], None]) -> None:
        """Show that something is on its way until it arrives or the user removes it."""
        model, unsent = self._model, self._model.unsent
        begun = unsent.begin_reading(printable(name, _LONGEST))

        def on_ended(ended: CallEnded) -> None:
            if not isValid(model) or not unsent.end_reading(begun):
                return
            if ended.state == "done":
                done(model, name, ended)
            else:
                text = f"{printable(name, _LONGEST)}: {shortened(visible(ended.text), _LONGEST_NOTE)}"
                self._ctx.notices.show(SUBJECT, notices.plain_text(text))

        job.ended.connect(on_ended)


def _about(text: str, server: str) -> str:
    return " · ".join(filter(None, (shortened(visible(" ".join(text.split())), _LONGEST), printable(server, _LONGEST))))


def _ask_for_arguments(prompt: ServerPrompt, window: QWidget, get: Callable[[dict[str, str]], object]) -> None:
    from app.ui.tools.questions import FormField  # few prompts need it

    def check() -> None:
        insert.setEnabled(all(field.is_valid() for field in fields.values()))

    dialog = QDialog(window)
    dialog.setWindowTitle(printable(prompt.title or prompt.name, _LONGEST))
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setMinimumWidth(themes.px(_WIDTH))
    insert, cancel = push_button("Insert", dialog.accept, role="primary"), push_button("Cancel", dialog.reject)
    insert.setDefault(True)
    fields = {
        one.name: FormField(one.name, {"description": one.description}, check, is_needed=one.is_required)
        for one in prompt.arguments
    }
    form = QWidget()
    column(*(field.layout for field in fields.values()), None, on=form)
    column((scrolling(form), 1), row(None, cancel, insert), margins=DIALOG_MARGINS, on=dialog)
    dialog.accepted.connect(lambda: get({name: text for name, field in fields.items() if (text := field.value())}))
    check()
    dialog.open()
