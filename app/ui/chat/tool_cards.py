"""A tool call in an answer: the question whether it may run, its progress, and its result.

Arguments, descriptions and results are written by models and servers, so they are shown as code or plain text, and
characters that have an effect but no shape are written out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QEvent, Qt, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit, QWidget

from app import words
from app.chats.model import Attachment, CallState, StoredCall
from app.markdown.find import count_matches
from app.tools.offered import DISPLAY_NAME
from app.ui.actions import Actions
from app.ui.chat.chips import Chips, chips_of
from app.ui.chat.footer import ABOVE_TEXT, BELOW_TEXT, INDENT, Card, FoldedPart, height_of
from app.ui.chat.markdown.view import MarkdownView
from app.ui.widgets import theme as themes
from app.ui.widgets.column import Column, Widths
from app.ui.widgets.controls import keeps_escape, label, named, plain_tooltip
from app.words import printable, shortened, visible, visible_json

_LONGEST_NAME, _LONGEST_PROGRESS, _LONGEST_SENTENCE, _LONGEST_DESCRIPTION = 40, 30, 240, 2000
"""Characters."""
_PICTURE = 160
"""The greatest height of an image, in pixels."""
_STATES: dict[CallState, str] = {
    "asked": "waiting for you",
    "running": "running…",
    "done": "",
    "failed": "failed",
    "denied": "denied",
    "stopped": "stopped",
}
_TITLES = {"done": "result", "failed": "error", "denied": "your reason"}
_HINTS = {
    "read_only": "The server says that this tool only reads.",
    "destructive": "The server says that this tool may change or delete data.",
}
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
"""The tokens of JSON."""
_ESCAPE = re.compile(r"\\(.)")
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"
"""Legitimate in words and emoji."""


def shown_arguments(call: StoredCall) -> str:
    """All arguments, with names, numbers and order as the model wrote them, and strings readable, line by line."""
    try:
        json.loads(call.arguments)
    except (ValueError, RecursionError):
        return visible_json(call.arguments)
    parts: list[str] = []
    depth = 0
    for token in _TOKENS.findall(call.arguments):
        if token in "{[":
            depth += 1
            parts.append(f"{token}\n{'  ' * depth}")
        elif token in "}]":
            depth -= 1
            is_empty = parts[-1][1:2] == "\n"
            parts[-1:] = [f"{parts[-1][:1]}{token}"] if is_empty else [parts[-1], f"\n{'  ' * depth}{token}"]
        else:
            parts.append(f",\n{'  ' * depth}" if token == "," else ": " if token == ":" else _text(token, depth))
    return "".join(parts)


def _text(token: str, depth: int) -> str:
    """A JSON string with a line break after each escaped one; a number or a word as it is."""
    if token[0] != '"':
        return token
    readable = visible_json(json.dumps(json.loads(token, strict=False), ensure_ascii=False))
    return _ESCAPE.sub(lambda one: f"\\n\n{'  ' * depth}  " if one[1] == "n" else one[0], readable)


def shown_result(call: StoredCall) -> str:
    """The result, as text."""
    return visible_json(call.result, _JOINERS)


def count_in_call(call: StoredCall, query: str) -> int:
    """How often ``query`` occurs in what is shown of a call."""
    return sum(count_matches(text, query, plain=True) for text in (shown_arguments(call), shown_result(call)))


def tool_name(call: StoredCall) -> str:
    """The tool's name on its server."""
    return printable(call.tool or call.name, 128)


def server_name(call: StoredCall) -> str:
    return printable(call.server, 64) or DISPLAY_NAME


def question_of(call: StoredCall) -> str:
    """What a screen reader says while the call waits for the user."""
    return f"The tool {tool_name(call)} from {server_name(call)} wants to run. Allow it?"


@dataclass(frozen=True)
class About:
    """What is known about a tool: its description, whether the tool has changed since it was allowed, and what its
    server says about it (``read_only`` or ``destructive``)."""

    description: str = ""
    has_changed: bool = False
    approach: str = ""

    def sentence(self, *, is_built_in: bool) -> str:
        """What it may do, in a sentence or two."""
        text = " ".join(visible(self.description).split())
        first = re.split(r"(?<=[.!?]) ", text, maxsplit=1)[0]
        hint = "" if is_built_in else _HINTS.get(self.approach, "")
        stop = "." if hint and first and first[-1].isalnum() else ""
        return " ".join(filter(None, (shortened(first, _LONGEST_SENTENCE) + stop, hint)))


class _Reason(QLineEdit):
    """Why the user denies a call: Enter denies it, Escape goes back."""

    def __init__(self) -> None:
        super().__init__(placeholderText="Why not? (Optional. Press Enter to deny.)")
        self.setAccessibleName("Reason for the model, optional")

    def event(self, event: QEvent) -> bool:
        return keeps_escape(event) or super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.clear()
            self.hide()
        else:
            super().keyPressEvent(event)


class Question(Card):
    """Asks whether a call may run. It takes the keyboard focus itself, so that no key allows anything by mistake.
    ``reason``: for the model; hidden until the user wants to deny the call."""

    def __init__(self, call: StoredCall, about: About, actions: Actions, height_changed: Callable[[], object]) -> None:
        run = partial(partial, actions.run)
        buttons: list[tuple[str, Callable[[], object]]] = [
            (actions.text(name), run(name, call.id)) for name in ("allow_call", "allow_in_chat", "always_allow")
        ]
        buttons.append((actions.text("deny_call"), self._on_deny))
        super().__init__(
            about.sentence(is_built_in=not call.server), buttons, role="warning" if about.has_changed else "info"
        )
        self.about = about
        self._call_id, self._actions, self._height_changed = call.id, actions, height_changed
        themes.set_role(self.buttons[0], "primary")
        self.text.setVisible(bool(self.text.text()))
        self.text.setToolTip(plain_tooltip(shortened(about.description, _LONGEST_DESCRIPTION)))
        breakable = tool_name(call).replace("_", "_\u200b")
        name = label(breakable, bold=True, wraps=True)
        whose = f"Server: {server_name(call)}" if call.server else f"Built into {DISPLAY_NAME}"
        server = label(whose, "quiet", wraps=True, scale=0.95)
        changed = label("This tool has changed since you allowed it.", "warning", wraps=True)
        changed.setVisible(about.has_changed)
        self.arguments = _code_view(shown_arguments(call), "json", f"Arguments of {tool_name(call)}")
        self.arguments.height_changed.connect(height_changed)
        self.reason = _Reason()
        self.reason.returnPressed.connect(self._on_deny)
        self.reason.hide()
        for place, part in ((0, name), (1, server), (3, changed), (4, self.arguments), (5, self.reason)):
            self._column.insertWidget(place, part)
        self.arguments.lower()  # the Tab key reaches it before the buttons
        self._outcome = label(role="quiet", wraps=True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(question_of(call))
        self.setAccessibleDescription(self.text.text())

    def settle(self, outcome: str) -> None:
        """The user has decided, but the card keeps its size while others wait, so that they don't move."""
        self._outcome.setText(outcome)
        self._grid.addWidget(self._outcome, 0, 0, 1, -1)
        self.reason.setEnabled(False)
        for part in (*self.buttons, *([self.reason] if self.reason.isVisible() and not self.reason.text() else [])):
            policy = part.sizePolicy()
            policy.setRetainSizeWhenHidden(True)
            part.setSizePolicy(policy)
            part.hide()

    @Slot()
    def _on_deny(self) -> None:
        """Let the user say why first."""
        if self.reason.isHidden():
            self.reason.show()
            self.reason.setFocus()
            self._height_changed()
        else:
            self._actions.run("deny_call", self._call_id, self.reason.text().strip())

    def fit(self, widths: Widths) -> int:
        margins = self.contentsMargins() + self._column.contentsMargins()
        inner = widths.prose - margins.left() - margins.right()
        self.arguments.set_widths(inner, inner)
        height = super().fit(widths)
        self.setGeometry(0, 0, widths.prose, height)
        return height


def _code_view(text: str, language: str, name: str) -> MarkdownView:
    view = named(MarkdownView(language=language), name)
    view.wrap_code()
    view.set_text(text, folds=True)
    return view


class ToolCard(FoldedPart):
    """One call. ``question`` is there while this call, or another one of the same turn, waits for the user."""

    def __init__(
        self, column: Column, parent: QWidget, dress_view: Callable[[MarkdownView], object], actions: Actions
    ) -> None:
        """``dress_view`` makes a new view look like the others."""
        super().__init__(column, parent, ("Stop", "Stops the tool and the answer.", "stop"), actions)
        self._run = actions
        self._dress_view = dress_view
        self.call = StoredCall(id="", name="")
        self._shown: object = None
        """What was last shown."""
        self.question: Question | None = None
        self._content: list[QWidget] = []
        self._images: Collection[Attachment] = ()

    def show_call(
        self, call: StoredCall, images: Sequence[Attachment], *, is_held: bool = False, progress: str = ""
    ) -> None:
        """Show the call as it is now. ``is_held``: others wait, so it keeps its height. ``progress``: while it runs."""
        if (shown := (call, is_held, progress)) == self._shown:
            return
        self._shown = shown
        before, self.call = self.call, call
        self._images = [one for one in images if one.sha256 in call.images]
        outcome = _outcome(call, progress)
        if call.state == "asked":
            self.question = self.question or self._asking(call)
        elif self.question is not None and is_held:
            self.question.settle(f"{outcome[:1].upper()}{outcome[1:]}")
        elif self.question is not None:
            self.question.deleteLater()
            self.question.hide()
            self.question = None
        self.button.setVisible(self.question is None)
        if (is_running := call.state == "running" and self.question is None) or self.stop_button is not None:
            self._show_stop(is_running)
        title = " · ".join(filter(None, (shortened(tool_name(call), _LONGEST_NAME), outcome)))
        self._show_title(title.replace("&", "&&"))
        self.button.setToolTip(plain_tooltip(f"Tool from {server_name(call)}"))
        if before != call and self._content:
            self._forget_content()
        self._show_content(self.is_open)
        self.height_changed.emit()

    def _asking(self, call: StoredCall) -> Question:
        question = Question(call, self._run.run("about_tool", call) or About(), self._run, self.height_changed.emit)
        question.setParent(self)
        self._dress_view(question.arguments)
        question.show()
        return question

    # -- what is inside

    def _forget_content(self) -> None:
        for one in self._content:
            one.hide()
            one.deleteLater()
        self._content = []

    def _show_content(self, is_open: bool) -> None:
        if is_open and not self._content and self.question is None:
            self._content = list(self._made())
        for one in self._content:
            one.setVisible(is_open)

    def _made(self) -> Iterator[QWidget]:
        texts = [(shown_arguments(self.call), "json", f"Arguments of {tool_name(self.call)}")]
        if result := shown_result(self.call):
            is_json = self.call.state == "done" and result.lstrip()[:1] in ("{", "[")
            language = "json" if is_json else _TITLES.get(self.call.state, "")
            texts.append((result, language, f"Result of {tool_name(self.call)}"))
        for text, language, name in texts:
            view = _code_view(text, language, name)
            view.setParent(self)
            view.height_changed.connect(self._on_view_height_changed)
            view.selection_dragged.connect(partial(self._column.show_point, view))
            self._dress_view(view)
            yield view
        if self._images:
            chips = named(Chips(self), "Images in the result")
            chips.show_chips(chips_of(tuple(self._images), chips, self._run, themes.px(_PICTURE)))
            yield chips
        elif not result and self.call.state == "done":
            yield label("The result is empty.", "quiet", parent=self)

    def views(self) -> list[MarkdownView]:
        """The views that have been shown, in reading order."""
        asked = [self.question.arguments] if self.question is not None else []
        return [*asked, *(one for one in self._content if isinstance(one, MarkdownView))]

    def is_in_use(self) -> bool:
        """Whether the user is writing a reason."""
        return self.question is not None and bool(self.question.reason.text())

    def count(self, query: str) -> int:
        """How many matches there are, whether it is open or not."""
        return count_in_call(self.call, query) if query else 0

    def show_find(self, index: int, query: str) -> MarkdownView:
        """Open it and highlight a match."""
        if self.question is None:
            self.set_open(True)
        views = self.views()
        before = count_matches(shown_arguments(self.call), query, plain=True)
        view = views[0] if index < before or len(views) == 1 else views[1]
        view.show_find(index if view is views[0] else index - before)
        return view

    def fit(self, widths: Widths) -> int:
        """Use these widths; returns the height that it needs."""
        if self.question is not None:
            bottom = self.question.fit(widths)
        else:
            bottom = self._fit_buttons(widths)
            self._text_top = bottom + ABOVE_TEXT
            for part in self._content if self.is_open else ():
                bottom = self._place(part, bottom + ABOVE_TEXT, widths)
            bottom += BELOW_TEXT if self.is_open else 0
        self.resize(widths.code, bottom)
        return bottom

    def _place(self, part: QWidget, top: int, widths: Widths) -> int:
        width = widths.prose - INDENT
        if isinstance(part, MarkdownView):
            part.set_widths(width, width)
            part.move(INDENT, top)
            return top + part.content_height()
        height = part.fit(width) if isinstance(part, Chips) else height_of(part, width)
        part.setGeometry(INDENT, top, width, height)
        return top + height


def readers(cards: Sequence[ToolCard]) -> list[str]:
    """The ids of waiting calls that may be allowed together: several to one server, which says that their tools only
    read."""
    waiting = [(one.call, one.question.about) for one in cards if one.question and one.call.state == "asked"]
    reading = [call for call, about in waiting if about.approach == "read_only" and not about.has_changed]
    servers = [one.server for one in reading]
    several = next((one for one in servers if servers.count(one) > 1), None)
    return [one.id for one in reading if one.server == several]


def _outcome(call: StoredCall, progress: str) -> str:
    """``0.2 s``, ``failed after 0.2 s``, ``running… 40%``."""
    state = _STATES[call.state]
    if call.state == "running":
        return f"{state} {shortened(visible(progress), _LONGEST_PROGRESS)}".strip()
    if call.state == "asked" or not call.seconds:
        return state
    took = words.duration(call.seconds)
    return f"{state} after {took}" if state else took
