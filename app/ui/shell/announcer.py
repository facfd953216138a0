"""Tells screen readers what happens in the main window outside the focus: answers, notices, models. Sends a desktop
notification when an answer finishes while the user is in another app.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtWidgets import QApplication

from app import words
from app.chats.model import StoredMessage
from app.protocol.events import PairLoaded
from app.ui.chat.footer import figures_of
from app.ui.chat.list.model import UNTITLED
from app.ui.chat.live_answer import LiveAnswer
from app.ui.context import AppContext
from app.ui.engine import EngineState
from app.ui.engine.pair_names import pair_title
from app.ui.notices import Notice
from app.ui.shell.main_window import MainWindow
from app.ui.widgets.focus import announce
from app.ui.widgets.tabbed_window import bring_to_front
from app.words import shortened, visible

_LONGEST_TITLE, _LONGEST_TEXT = 60, 120
"""Characters."""
_CUTS = {
    "length": "The answer was cut at the length limit",
    "context": "The answer was cut because the context is full",
    "cancelled": "Stopped",
    "repeats": "Stopped because it kept repeating itself",
}
_ENDS = {"stopped": "Stopped", "interrupted": "The answer was interrupted", "failed": "The answer couldn't be finished"}


class Announcer(QObject):
    """One for a main window. Announces the beginning and end of an answer and its thinking, never the tokens."""

    def __init__(self, ctx: AppContext, window: MainWindow) -> None:
        super().__init__(window)
        self._ctx = ctx
        self._window = window
        self._notice_list = ctx.notices
        self._told: dict[str, Notice] = ctx.notices.notices()
        # What is withdrawn before it can be seen isn't announced either.
        self._settled = QTimer(self, singleShot=True, interval=0)
        self._settled.timeout.connect(self._on_notices_settled)
        self._is_loading = False
        ctx.chats.answers.begun.connect(self._on_answer_begun)
        ctx.notices.changed.connect(lambda: self._settled.start())  # noqa: PLW0108 - without the notices
        ctx.engine.state_changed.connect(self._on_engine_state_changed)
        ctx.loader.pair_changed.connect(self._on_pair_changed)

    # ------------------------------------------------------------ answers

    @Slot(object)
    def _on_answer_begun(self, live: LiveAnswer) -> None:
        self._window.chat_list.view.chats.set_answering(live.chat_id, True)
        if self._is_shown(live):
            announce(self._window, "Answering…")
        live.thinking_changed.connect(lambda is_thinking: self._on_thinking_changed(live, is_thinking))
        asked: set[str] = set()
        live.calls_changed.connect(lambda: self._on_calls_changed(live, asked))
        live.ended.connect(lambda _figures: self._on_answer_ended(live))

    def _on_thinking_changed(self, live: LiveAnswer, is_thinking: bool) -> None:
        """Announce the beginning and end of thinking, not its text."""
        if self._is_shown(live):
            announce(self._window, "Thinking…" if is_thinking else "Finished thinking")

    def _on_calls_changed(self, live: LiveAnswer, asked: set[str]) -> None:
        """Announce each tool call that waits for the user, once. ``asked``: the ids of those already announced."""
        waiting = [call for call in live.calls if call.state == "asked"] if live.is_asking else []
        self._window.chat_list.view.chats.set_answering(live.chat_id, True, asks=bool(waiting))
        new = [call for call in waiting if call.id not in asked]
        asked.update(call.id for call in new)
        if not new:
            return
        from app.ui.chat.tool_cards import question_of  # the first picture shows no card

        question, title = question_of(new[0]), self._title(live)
        more = f" {words.count(len(new) - 1, 'more call is waiting', 'more calls are waiting')}." if new[1:] else ""
        announce(self._window, f"{question}{more}" if self._is_shown(live) else f"{question}{more} In “{title}”")
        self._focus_question(live)
        self._notify(live, title, question)

    def _focus_question(self, live: LiveAnswer) -> None:
        """Give the keyboard to the call that waits, unless the user is writing or doing something else."""
        composer, focused = self._window.composer, QApplication.focusWidget()
        if self._is_shown(live) and composer.isAncestorOf(focused or self._window) and not composer.is_in_use():
            self._window.transcript.focus_question()

    def _title(self, live: LiveAnswer) -> str:
        return shortened(visible(self._ctx.operations.title(live.chat_id)) or UNTITLED, _LONGEST_TITLE)

    def _notify(self, live: LiveAnswer, title: str, text: str) -> None:
        if text and not live.is_private and self._ctx.settings.values.notify_finished:
            self._ctx.notifier.tell(title, text, lambda: self._bring_to_front(live))

    def _on_answer_ended(self, live: LiveAnswer) -> None:
        message = live.message
        self._window.chat_list.view.chats.set_answering(live.chat_id, False)
        if message is None:
            return
        title = self._title(live)
        if self._is_shown(live):
            announce(self._window, end_of_answer(message))
        elif message.status == "complete" and not live.is_private:
            announce(self._window, f"Answer finished in “{title}”")
        self._notify(live, title, notification_text(message))

    def _bring_to_front(self, live: LiveAnswer) -> None:
        bring_to_front(self._window)
        self._ctx.chats.open(live.chat_id)
        self._window.composer.setFocus()
        self._window.transcript.focus_question()

    def _is_shown(self, live: LiveAnswer) -> bool:
        return self._ctx.chats.current.id == live.chat_id

    # ------------------------------------------------------------ everything else

    @Slot()
    def _on_notices_settled(self) -> None:
        before, self._told = self._told, self._notice_list.notices()
        for subject, notice in self._told.items():
            if before.get(subject) != notice:
                announce(self._window, notice.text, is_urgent=notice.kind == "bad")

    @Slot(EngineState)
    def _on_engine_state_changed(self, state: EngineState) -> None:
        is_loading = state is EngineState.LOADING
        if is_loading and not self._is_loading:
            is_remote = self._ctx.loader.is_remote()
            announce(self._window, "Connecting to the server…" if is_remote else "Loading the model…")
        self._is_loading = is_loading

    @Slot(object)
    def _on_pair_changed(self, pair: PairLoaded | None) -> None:
        if title := pair_title(pair):
            is_remote = pair is not None and pair.remote is not None
            announce(self._window, f"{'Connected' if is_remote else 'Model loaded'}: {title}")


def notification_text(message: StoredMessage) -> str:
    """The notification for a finished answer; empty if the user stopped it."""
    if message.status == "stopped" and message.finish_reason != "repeats":
        return ""
    if message.status != "complete":
        return "The answer couldn't be finished."
    return shortened(" ".join(visible(message.text[: 2 * _LONGEST_TEXT]).split()), _LONGEST_TEXT)


def end_of_answer(message: StoredMessage) -> str:
    """How an answer ended, in a few words."""
    if cut := _CUTS.get(message.finish_reason or ""):
        return cut
    if message.status != "complete":
        return _ENDS.get(message.status, "")
    return f"Answer finished, {words.tokens(figures_of(message.figures).completion_tokens)}"
