"""Questions from servers to the user, one at a time: a form, an answer from the model, a page to log in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from PySide6.QtCore import QObject, QUrl, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QCheckBox, QComboBox, QDialog, QDialogButtonBox, QLineEdit, QPlainTextEdit, QWidget

from app import words
from app.protocol.answering import AnswerSettings
from app.protocol.commands import Message, generate
from app.protocol.events import RoundsReceived
from app.tools.messages import UserAsked
from app.ui.engine import Priority
from app.ui.engine.queue import EngineQueue, Job
from app.ui.tools.service import ToolService
from app.ui.widgets import theme
from app.ui.widgets.controls import DIALOG_MARGINS, breakable, column, label, named, push_button, scrolling
from app.ui.widgets.theme import SPACING

_MOST_FIELDS, _MOST_CHOICES = 30, 200
_MOST_TOKENS = 2000
_MOST_LINES, _LINE_LENGTH = 12, 50
_LONGEST_SWITCH = 48
_ASKS = {
    "elicitation": "asks you:",
    "sampling": "wants the model to answer this. The answer goes to the server:",
    "login": "asks you to open this page in your browser:",
}
_YES = {"elicitation": "Send", "sampling": "Let the model answer", "login": "Open in browser"}
_NO_PASSWORDS = "Don't enter passwords or keys that this server doesn't need."


class ToolQuestions(QObject):
    """Shows the questions of a `ToolService` one after the other. ``dialog``: the one that is open."""

    def __init__(self, service: ToolService, queue: EngineQueue, window: QWidget) -> None:
        super().__init__(window)
        self._service, self._queue, self._window = service, queue, window
        self._waiting: deque[UserAsked] = deque()
        self._jobs: dict[int, Job] = {}
        """Answers that the model is writing, by question."""
        self.dialog: QuestionDialog | None = None
        service.withdrawn.connect(self._on_withdrawn)

    def ask(self, asked: UserAsked) -> None:
        if asked.kind == "login" and QUrl(asked.url).scheme() not in ("http", "https"):
            self._service.reply(asked.question, "decline")
            return
        self._waiting.append(asked)
        self._show_next()

    @Slot()
    def _show_next(self) -> None:
        if self.dialog is None and self._waiting:
            self.dialog = QuestionDialog(self._waiting.popleft(), self._window)
            self.dialog.finished.connect(self._on_finished)
            self.dialog.open()

    @Slot()
    def _on_finished(self) -> None:
        dialog, self.dialog = self.dialog, None
        if dialog is not None:
            dialog.deleteLater()
            kind = dialog.asked.kind if dialog.action == "accept" else ""
            if kind == "login":
                QDesktopServices.openUrl(QUrl(dialog.asked.url))
            if kind == "sampling":
                self._let_the_model_answer(dialog.asked)
            else:
                self._service.reply(dialog.asked.question, dialog.action, **dialog.content())
        self._show_next()

    @Slot(int)
    def _on_withdrawn(self, question: int) -> None:
        self._waiting = deque(one for one in self._waiting if one.question != question)
        if (job := self._jobs.pop(question, None)) is not None:
            self._queue.drop(job)
        if self.dialog is not None and self.dialog.asked.question == question:
            self.dialog.reject()  # no reply is sent any more

    def _let_the_model_answer(self, asked: UserAsked) -> None:
        question, texts = asked.question, list[str]()
        command = generate(AnswerSettings(max_tokens=_MOST_TOKENS), [Message(role="user", content=asked.message)])
        job = self._jobs[question] = Job(lambda: command, Priority.CHAT)

        def received(event: RoundsReceived) -> None:
            texts.extend(piece.text for one in event.rounds for piece in one.pieces if not piece.thinking)

        def reply(action: Literal["accept", "decline"]) -> None:
            if self._jobs.pop(question, None) is not None:
                self._service.reply(question, action, text="".join(texts).strip())

        job.rounds_received.connect(received)
        job.answered.connect(lambda _event: reply("accept"))
        job.failed.connect(lambda _event: reply("decline"))
        job.lost.connect(lambda _what: reply("decline"))
        self._queue.submit(job)


class QuestionDialog(QDialog):
    """One question. No button is pressed by Enter: the user may be typing when it appears.

    Attributes:
        asked: The question.
        action: What the user chose.
        accept_button, decline_button: What the user can choose.
        fields: The fields of a form, by name.
    """

    def __init__(self, asked: UserAsked, parent: QWidget) -> None:
        super().__init__(parent)
        self.asked = asked
        self.action: Literal["accept", "decline", "cancel"] = "cancel"
        self.fields: dict[str, FormField] = {}
        server = words.printable(asked.server)
        self.setWindowTitle(f"A question from {server}")
        self.setMinimumWidth(420)
        message = words.visible("\n\n".join(filter(None, [asked.message, asked.url])))
        self._text = named(QPlainTextEdit(message, readOnly=True, tabChangesFocus=True), f"What {server} asks")
        self.accept_button = push_button(_YES[asked.kind], lambda: self._end("accept"), role="primary")
        self.decline_button = push_button("Decline", lambda: self._end("decline"))
        box = QDialogButtonBox()
        box.addButton(self.accept_button, QDialogButtonBox.ButtonRole.ActionRole)
        box.addButton(self.decline_button, QDialogButtonBox.ButtonRole.ActionRole)
        hint = label(_NO_PASSWORDS if asked.kind == "elicitation" else "", "quiet", wraps=True)
        heading = label(breakable(f"The MCP server “{server}” {_ASKS[asked.kind]}"), "heading", wraps=True)
        form = scrolling(self._form())
        theme.follow_zoom(self._text, self._fit)
        text = self._text if self.fields else (self._text, 1)  # else there is room for it
        column(heading, text, (form, 1), hint, box, gap=3 * SPACING, margins=DIALOG_MARGINS, on=self)
        form.setVisible(bool(self.fields))
        self._check()
        self._text.setFocus()

    def _fit(self) -> None:
        wrapped = sum(1 + len(line) // _LINE_LENGTH for line in self._text.toPlainText().split("\n"))
        lines = min(max(wrapped + 1, 3), _MOST_LINES)
        height = lines * self._text.fontMetrics().lineSpacing() + 6 * SPACING
        self._text.setMinimumHeight(height)
        if self.fields:
            self._text.setMaximumHeight(height)

    def content(self) -> dict[str, Any]:
        """What the user entered, by name."""
        if self.action != "accept":
            return {}
        return {name: value for name, field in self.fields.items() if (value := field.value()) is not None}

    def _form(self) -> QWidget:
        content, rows = QWidget(), column()
        needed = self.asked.fields.get("required")
        properties = self.asked.fields.get("properties") if self.asked.kind == "elicitation" else None
        for name, schema in list(properties.items() if isinstance(properties, dict) else ())[:_MOST_FIELDS]:
            if isinstance(schema, dict):
                is_needed = isinstance(needed, list) and name in needed
                field = self.fields[name] = FormField(name, schema, self._check, is_needed=is_needed)
                rows.addLayout(field.layout)
        column(rows, None, on=content)
        return content

    def _check(self) -> None:
        self.accept_button.setEnabled(all(field.is_valid() for field in self.fields.values()))

    def _end(self, action: Literal["accept", "decline"]) -> None:
        self.action = action
        self.accept()


class FormField:
    """One value of a form: text, a number, a choice or yes/no, as its JSON schema says. ``layout`` shows it."""

    def __init__(self, name: str, schema: dict[str, Any], changed: Callable[[], object], *, is_needed: bool) -> None:
        self._schema, self._is_needed = schema, is_needed
        self._kind = schema.get("type")
        title = words.printable(str(schema.get("title") or name))
        default = schema.get("default")
        self.widget: QCheckBox | QComboBox | QLineEdit
        if self._kind == "boolean":
            self.widget = QCheckBox(words.shortened(title, _LONGEST_SWITCH).replace("&", "&&"))
            self.widget.setChecked(default is True)
        elif choices := _choices(schema):
            self.widget = named(QComboBox(minimumContentsLength=8), title)
            self.widget.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            for value, shown in ([] if is_needed else [(None, "")]) + choices:
                self.widget.addItem(words.printable(shown), value)
            self.widget.setCurrentIndex(max(self.widget.findData(default), 0))
        else:
            self.widget = named(QLineEdit("" if default is None else str(default)), title)
            self.widget.textChanged.connect(changed)
        parts: list[QWidget] = [self.widget]
        if self._kind != "boolean":
            name = breakable(f"{title}:" if is_needed else f"{title} (optional):")
            parts.insert(0, label(name, wraps=True, buddy=self.widget))
        elif len(title) > _LONGEST_SWITCH:
            parts.append(label(breakable(title), wraps=True))
        if description := schema.get("description"):
            parts.append(label(breakable(words.visible(words.shortened(str(description), 300))), "quiet", wraps=True))
        self.layout = column(*parts, gap=SPACING)

    def value(self) -> Any:
        """``None``: nothing was entered."""
        match self.widget:
            case QCheckBox():
                return self.widget.isChecked()
            case QComboBox():
                return self.widget.currentData()
        text = self.widget.text().strip()
        if self._kind == "integer":
            return int(text) if text else None
        return (float(text) if self._kind == "number" else text) if text else None

    def is_valid(self) -> bool:
        try:
            value = self.value()
        except ValueError:
            return False
        if value is None:
            return not self._is_needed
        size = len(value) if isinstance(value, str) else value
        low, high = ("minLength", "maxLength") if isinstance(value, str) else ("minimum", "maximum")
        least, most = self._schema.get(low), self._schema.get(high)
        return not (isinstance(least, int | float) and size < least) and not (
            isinstance(most, int | float) and size > most
        )


def _choices(schema: dict[str, Any]) -> list[tuple[Any, str]]:
    """The values, each with the text that is shown for it."""
    options, values, names = schema.get("oneOf"), schema.get("enum"), schema.get("enumNames")
    if isinstance(options, list):
        found = [(one.get("const"), one.get("title")) for one in options if isinstance(one, dict)]
    else:
        values = values if isinstance(values, list) else []
        names = names if isinstance(names, list) and len(names) == len(values) else values
        found = list(zip(values, names, strict=True))
    return [(value, str(name or value)) for value, name in found if isinstance(value, str)][:_MOST_CHOICES]
