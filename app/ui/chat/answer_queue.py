"""Has one answer after the other written by the engine, whichever chats they belong to."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chats.model import Status, title_for
from app.chats.settings import ChatSettings
from app.protocol.events import (
    Figures,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PairLoaded,
    PromptProgressed,
    RoundsReceived,
)
from app.ui import notices
from app.ui.chat.conversation import AnswerSettings
from app.ui.chat.footer import WHILE_WRITTEN
from app.ui.chat.host_consent import HostConsent
from app.ui.chat.live_answer import LiveAnswer
from app.ui.engine import drafters
from app.ui.engine.client import EngineClient, EngineState
from app.ui.engine.pair import PairLoader
from app.ui.notices import NoticeList

CONSENT = "consent"
"""Subject of the notice that asks whether a chat may go to a server."""
SERVER = "server"
"""Subject of the notice about an answer that a server didn't finish."""
ENGINE_LOST = f"The engine stopped{WHILE_WRITTEN}"


class AnswerQueue(QObject):
    """One for an engine.

    Attributes:
        live: The answer being written.
        resolve: From a chat's settings and the loaded pair to how the engine is asked.
        consent: Which chats may go to a server.
        is_shown: Whether the chat with this id is the one that is shown, which a notice can be about.

    Signals:
        begun: The `LiveAnswer` the engine is being asked for.
        wanted_changed: Whether any answer is being written or waits: others leave the engine alone then.
    """

    begun = Signal(object)
    wanted_changed = Signal(bool)

    def __init__(
        self,
        engine: EngineClient,
        pair_loader: PairLoader,
        notice_list: NoticeList,
        resolve: Callable[[ChatSettings, PairLoaded | None], AnswerSettings],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.live: LiveAnswer | None = None
        self.resolve = resolve
        self._engine = engine
        self._pair_loader = pair_loader
        self._notice_list = notice_list
        self._waiting: list[LiveAnswer] = []
        self._was_wanted = False
        self._unallowed: LiveAnswer | None = None
        """What waits for the user's consent."""
        self.consent = HostConsent(pair_loader.remote)
        self.is_shown: Callable[[str], bool] = lambda _chat_id: True
        engine.generation_started.connect(self._on_generation_started)
        engine.prompt_progressed.connect(self._on_prompt_progressed)
        engine.rounds_received.connect(self._on_rounds_received)
        engine.generation_finished.connect(self._on_generation_finished)
        engine.generation_failed.connect(self._on_generation_failed)
        engine.state_changed.connect(self._on_state_changed)
        pair_loader.engine_lost.connect(lambda: self._end("interrupted", failure=ENGINE_LOST))
        pair_loader.pair_given_up.connect(lambda: self._end("stopped", "cancelled"))
        pair_loader.pair_changed.connect(self._ask_for_consent)

    def is_wanted(self) -> bool:
        """Whether any answer is being written or waits."""
        return self.live is not None or bool(self._waiting)

    def settings(self, chat: ChatSettings) -> AnswerSettings:
        """How an answer in a chat with these settings would be asked for now."""
        return self.resolve(chat, self._pair_loader.pair())

    # ------------------------------------------------------------ what chats ask for

    def add(self, live: LiveAnswer) -> None:
        """Have this written when its turn comes, but not before it ``is_stored``: see `go_on`."""
        if len(live.branch) == live.branch[-1].versions == 1 and not live.is_stored:
            self.consent.allow(live.chat_id)  # it begins now, with the server that is shown
        self._waiting.append(live)
        self.go_on()

    def withdraw(self, live: LiveAnswer) -> None:
        """It waits, and is no longer wanted."""
        self._waiting.remove(live)
        self._tell_wanted()
        live.withdrawn.emit()
        self._ask_for_consent()

    def stop(self, live: LiveAnswer) -> None:
        """No more of this answer is wanted."""
        if live is self.live:
            self._engine.cancel()
        elif live in self._waiting:
            self.withdraw(live)

    def stop_thinking(self, live: LiveAnswer) -> None:
        """The rest of what the model would think before this answer isn't wanted."""
        if live is self.live:
            self._engine.stop_thinking()

    def abandon(self, live: LiveAnswer) -> None:
        """The chat of this answer goes: it ends at once, whatever the engine still has to say."""
        if live is self.live:
            self._engine.cancel()
            self._end("stopped", "cancelled")
        elif live in self._waiting:
            self.withdraw(live)

    def _end(
        self, status: Status, reason: str | None = None, failure: str = "", figures: Figures | None = None
    ) -> None:
        """What is being written is over, if anything is."""
        live, self.live = self.live, None
        if live is not None:
            live.end(status, reason, figures, extra={"failure": failure} if failure else None)
            self.go_on()

    def clear(self) -> None:
        """The window closes: what waits is withdrawn, what is being written is interrupted."""
        for waiting in list(self._waiting):
            self.withdraw(waiting)
        self._end("interrupted")

    @Slot()
    def go_on(self) -> None:
        """Begin the next answer if the engine can; otherwise see that it will be able to."""
        ready = [one for one in self._waiting if one.is_stored]
        live = next((one for one in ready if not self.consent.is_needed(one.chat_id, one.branch)), None)
        self._ask_for_consent()
        if self.live is None and live is not None:
            state = self._engine.state()
            if state is EngineState.READY:
                self._begin(live)
            elif state is EngineState.DIED and self._pair_loader.can_bring_back():
                self._pair_loader.restart()
            elif state is EngineState.EMPTY and not (
                self._pair_loader.is_planning() or "load" in self._notice_list.notices()
            ):
                self._notice_list.show("load", notices.no_model())
        self._tell_wanted()

    # ------------------------------------------------------------ servers

    @Slot()
    def _ask_for_consent(self) -> None:
        """Ask whether what waits may go to the server in use, where that is necessary."""
        needs = (one for one in self._waiting if one.is_stored and self.consent.is_needed(one.chat_id, one.branch))
        self._unallowed = live = next(needs, None)
        if live is None:
            self._notice_list.remove(CONSENT)
        else:
            notice = notices.may_be_sent(title_for(live.branch[0]), self.consent.host())
            self._notice_list.show(CONSENT, notice)

    def send_chat(self) -> None:
        """The user allows that the chat in question goes to the server."""
        if self._unallowed is not None:
            self.consent.allow(self._unallowed.chat_id)
            self.go_on()

    def do_not_send(self) -> None:
        """The user doesn't."""
        if self._unallowed is not None:
            self.withdraw(self._unallowed)

    def _begin(self, live: LiveAnswer) -> None:
        self._waiting.remove(live)
        self.live = live
        self._notice_list.remove(SERVER)
        pair = self._pair_loader.pair()
        self.begun.emit(live)
        live.request = self._engine.ask(live.begin(self.resolve(live.settings, pair), pair))

    def _tell_wanted(self) -> None:
        wanted = self.is_wanted()
        if wanted != self._was_wanted:
            self._was_wanted = wanted
            self.wanted_changed.emit(wanted)

    # ------------------------------------------------------------ what the engine says

    def _answer_to(self, request: int) -> LiveAnswer | None:
        """The answer being written, if this is its request."""
        return self.live if self.live is not None and self.live.request == request else None

    @Slot(object)
    def _on_generation_started(self, started: GenerationStarted) -> None:
        if (live := self._answer_to(started.request)) is not None:
            live.on_started(started)

    @Slot(object)
    def _on_prompt_progressed(self, progress: PromptProgressed) -> None:
        if (live := self._answer_to(progress.request)) is not None:
            live.on_prompt_progressed(progress)

    @Slot(object)
    def _on_rounds_received(self, event: RoundsReceived) -> None:
        if (live := self._answer_to(event.request)) is not None:
            live.on_rounds_received(event)
            if live.repeats:
                self._engine.cancel()

    @Slot(object)
    def _on_generation_finished(self, finished: GenerationFinished) -> None:
        if (live := self._answer_to(finished.request)) is not None:
            if finished.draft_failure:
                is_head = drafters.has_head(pair := self._pair_loader.pair())
                both = is_head and drafters.has_model(pair)
                notice = notices.draft_failed(finished.draft_failure, is_head=is_head, is_one_of_two=both)
                self._notice_list.show("drafting", notice)
            self.live = None
            live.on_finished(finished)
            self.go_on()

    @Slot(object)
    def _on_generation_failed(self, failed: GenerationFailed) -> None:
        if (live := self._answer_to(failed.request)) is None:
            return
        remote = self._pair_loader.remote()
        is_explained = failed.cause in ("", "context", "refused")  # asking again wouldn't help
        if remote is not None and not is_explained and self.is_shown(live.chat_id):
            can_continue = remote.can_continue and bool(live.pieces)
            notice = notices.answer_not_finished(failed.cause, has_begun=bool(live.pieces), can_continue=can_continue)
            self._notice_list.show(SERVER, notice)
        is_cut = bool(failed.cause and live.pieces)
        self._end("interrupted" if is_cut else "failed", failure=failed.message, figures=failed.figures)

    @Slot(EngineState)
    def _on_state_changed(self, state: EngineState) -> None:
        if state is EngineState.READY:
            # Not at once: whoever changed the state may still have to tell us how the last answer ended.
            QTimer.singleShot(0, self, self.go_on)
