"""One open chat: its messages, the answer being written, its settings, what stands in its composer.

What the user does is done here at once and written to the store behind it, in order (`writer`); the engine is asked
when the store has the question. While the messages are still being read, a message sent waits for them.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from PySide6.QtCore import QObject, Signal, Slot

from app.chats.attachments import Content
from app.chats.model import Attachment, Chat, StoredCall, StoredMessage, title_for
from app.chats.settings import ChatSettings, chat_settings
from app.chats.store import ChatStore, new_id
from app.chats.tree import Deletion
from app.system import KnownError
from app.tools.messages import ResultImage
from app.ui.chat.answers import Answers, Decision
from app.ui.chat.conversation import can_continue, was_cut
from app.ui.chat.live_answer import LiveAnswer
from app.ui.chat.writer import ChatWriter, StoredChats, UnsentMessage, edited_answer, new_question

T = TypeVar("T")
_Unsent = tuple[str, tuple[Attachment, ...]]

_END = 20
"""Messages: enough to fill a screen."""


class ChatState(enum.Enum):
    """What a chat is doing."""

    OPENING = "opening"
    """Its messages are being read."""
    IDLE = "idle"
    WAITING = "waiting"
    """A message waits for its answer to begin."""
    ANSWERING = "answering"
    ASKING = "asking"
    """A tool call of the answer waits for the user; the engine is free."""

    @property
    def is_busy(self) -> bool:
        """Whether an answer is being written or waited for."""
        return self in (ChatState.WAITING, ChatState.ANSWERING, ChatState.ASKING)

    @property
    def is_waiting(self) -> bool:
        return self is ChatState.WAITING


@dataclass
class _Queued:
    """What the user asked for while the messages were being read."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    """Of a message to send; nothing of either: the last answer is to be written again."""
    is_answered: bool = True

    @property
    def is_message(self) -> bool:
        return bool(self.text or self.attachments)


class ChatModel(QObject):
    """One open chat. Views observe it; what changes it is called here, and refused where the state does not allow it.

    Attributes:
        id: Also of a chat that the store gets only with its first message.
        title, messages, settings: As they are now. ``messages`` is the shown branch, oldest first, its last one empty
            while it is being written.
        unsent: What the composer contains.
        live: The answer that waits or is being written.
        is_new: Whether it has no message yet.
        is_temporary: Whether it is never stored on the disk.

    Signals:
        state_changed: The new `ChatState`.
        end_read: The last messages of a chat that is being opened, to be seen before all are read.
        branch_changed: The messages from this place on have changed.
        answer_begun, answer_ended: The last message is being written (`live`), or has ended as it is now.
        stored: The store has another message, or the end of an answer; the list of chats is out of date.
        created: It has its first message.
        settings_changed: Other settings, or another title.
        asking: An answer is about to be asked for with `settings`: the last moment to set them.
        failed: A `KnownError` of the store, for an operation that was not done.
    """

    state_changed = Signal(ChatState)
    end_read = Signal(list)
    branch_changed = Signal(int)
    answer_begun = Signal()
    answer_ended = Signal()
    stored = Signal()
    created = Signal()
    settings_changed = Signal()
    asking = Signal()
    failed = Signal(object)

    def __init__(
        self,
        chat_store: StoredChats,
        answers: Answers,
        settings: ChatSettings,
        chat_id: str = "",
        *,
        is_temporary: bool = False,
        parent: QObject | None = None,
    ) -> None:
        """Of the chat with this id, to be read with `open`; without one, a new chat with these ``settings``."""
        super().__init__(parent)
        self.id = chat_id or new_id()
        self.is_new = not chat_id
        self.is_temporary = is_temporary
        self.title = ""
        self.messages: list[StoredMessage] = []
        self.settings = settings
        self.live: LiveAnswer | None = None
        self.writer = ChatWriter(chat_store, self)
        self.unsent = UnsentMessage(self.writer, chat_id or None, self, is_known=self.is_new)
        self._has_chosen = False
        """Whether the settings are this chat's own."""
        self._answers = answers
        self._chat_store = chat_store
        self._reading = 0
        """How many readings of the store are under way."""
        self._is_read = self.is_new
        self._queued: _Queued | None = None
        self._replaced: list[StoredMessage] = []
        """What is shown again if the answer that waits is withdrawn."""
        self._saved_calls: list[StoredCall] = []
        self._told_state = self.state

    # ------------------------------------------------------------ what it is doing

    @property
    def state(self) -> ChatState:
        if self.live is not None:
            if self.live.message is None:
                return ChatState.WAITING
            return ChatState.ASKING if self.live.is_asking else ChatState.ANSWERING
        if self._queued is not None:
            return ChatState.WAITING
        return ChatState.OPENING if self._reading else ChatState.IDLE

    def _refresh(self) -> None:
        state = self.state
        if state is not self._told_state:
            self._told_state = state
            self.state_changed.emit(state)

    def place(self, message_id: str) -> int | None:
        """Where a message stands in the branch."""
        return next((place for place, one in enumerate(self.messages) if one.id == message_id), None)

    @property
    def must_open(self) -> bool:
        """Whether its messages could not be read."""
        return not self._is_read and not self._reading

    @property
    def knows_settings(self) -> bool:
        """Whether `settings` are this chat's, and not still to be read."""
        return self._is_read

    def is_settled(self) -> bool:
        """Whether nothing goes on here and the store has everything."""
        return self.state is ChatState.IDLE and self.writer.is_saved() and self.unsent.is_saved()

    def is_unanswered(self) -> bool:
        """Whether the last message is the user's, and no answer to it is coming."""
        return self.state is ChatState.IDLE and bool(self.messages) and self.messages[-1].role == "user"

    # ------------------------------------------------------------ reading

    def open(self) -> None:
        """Read the chat from the store."""
        chat_id = self.id

        def end_done(end: list[StoredMessage]) -> None:
            if end and not self._is_read and not self.messages:
                self.end_read.emit(end)

        # What fails here fails again at once, and is told then.
        self.writer.read(lambda store: store.branch_end(chat_id, _END), end_done, lambda _error: None)

        def read(store: ChatStore) -> tuple[Chat, list[StoredMessage], _Unsent]:
            try:
                chat = store.chat(chat_id)
            except LookupError:
                raise KnownError("This chat has been deleted.") from None
            if chat.deleted_at is not None:
                raise KnownError("This chat is in the trash.")
            return chat, store.branch(chat_id), _unsent(store, chat_id)

        def done(found: tuple[Chat, list[StoredMessage], _Unsent]) -> None:
            chat, branch, unsent = found
            self._is_read = True
            self.title, chosen = chat.title, chat_settings(chat.settings)
            if chosen is not None:
                self.settings, self._has_chosen = chosen, True
            self.settings_changed.emit()
            self.unsent.add_stored(*unsent)
            self._show(branch)

        self._read(read, done)

    def open_new(self) -> None:
        """Read what was left unsent in the new chat."""
        self.unsent.is_known = False
        self._read(lambda store: _unsent(store, None), lambda unsent: self.unsent.add_stored(*unsent))

    def _read(
        self, read: Callable[[ChatStore], T], show: Callable[[T], None], not_done: Callable[[], None] | None = None
    ) -> None:
        """Ask the store for what is to be shown; until that is here, nothing else can be done but sending."""
        self._reading += 1
        self._refresh()

        def done(found: T) -> None:
            self._reading -= 1
            show(found)
            self._carry_on()

        def failed(error: KnownError) -> None:
            self._reading -= 1
            self._give_back()
            if not_done is not None:
                not_done()
            self.failed.emit(error)
            self._refresh()

        self.writer.read(read, done, failed)

    def _carry_on(self) -> None:
        """Do what was asked for meanwhile."""
        queued = self._queued
        if queued is not None and self._is_read and not self._reading:
            self._queued = None
            if queued.is_message:
                self._ask(queued.text, queued.attachments, is_answered=queued.is_answered)
            else:
                self.regenerate()
        self._refresh()

    def _give_back(self) -> None:
        """Put a message that wasn't sent back into the composer."""
        queued, self._queued = self._queued, None
        if queued is not None and queued.is_message:
            self.unsent.give_back(queued.text, queued.attachments)

    def _show(self, branch: list[StoredMessage]) -> None:
        """Show another branch, and tell only what differs."""
        old, same = self.messages, 0
        while same < min(len(old), len(branch)) and old[same] == branch[same]:
            same += 1
        self.messages = branch
        if same < max(len(old), len(branch)) or not branch:
            self.branch_changed.emit(same)

    def _replace(self, place: int, messages: Sequence[StoredMessage]) -> None:
        """Replace the messages from ``place`` on."""
        if place < len(self.messages) or messages:
            self.messages[place:] = messages
            self.branch_changed.emit(place)

    # ------------------------------------------------------------ what the user does

    def send(self, text: str) -> bool:
        """Ask something, with the attachments if it stands in the composer. ``False`` if that can't be done now."""
        is_unsent = text == self.unsent.text
        if self.state.is_busy or not (text.strip() or (is_unsent and self.unsent.attachments)):
            return False
        if is_unsent and self.unsent.reading:
            return False  # the message isn't complete
        attachments = self.unsent.take()[1] if is_unsent else ()
        if self.state is ChatState.OPENING:
            self._queued = _Queued(text, attachments)
            self._refresh()
        else:
            self._ask(text, attachments)
        return True

    def attach(self, content: Content, in_place_of: Attachment | None = None, *, reading: int = 0) -> None:
        """Attach this to the message in the composer, or replace an attachment. ``reading``: its number in
        `UnsentMessage.reading`, if it has one: the user may have removed it meanwhile."""

        def kept(attachment: Attachment) -> None:
            if reading and not self.unsent.end_reading(reading):
                return
            attachments = list(self.unsent.attachments)
            if in_place_of in attachments:
                attachments[attachments.index(in_place_of)] = attachment
            elif in_place_of is None and attachment not in attachments:
                attachments.append(attachment)
            self.unsent.attach(attachments)

        def failed(error: KnownError) -> None:
            self.unsent.end_reading(reading)
            self.failed.emit(error)

        self.writer.read(lambda store: store.keep(content), kept, failed)

    def edit(self, message_id: str, text: str, attachments: Sequence[Attachment] | None = None) -> bool:
        """Add a version of a message with another wording; one of the user's is answered. ``attachments``: what goes
        with that now; ``None``: the same as before."""
        place = self._idle_place(message_id)
        if place is None:
            return False
        old = self.messages[place]
        attached = old.attachments if attachments is None else tuple(attachments)
        if not (text.strip() or attached):
            return False
        if old.role == "user":
            self._ask(text, attached, place)
            return True
        message = edited_answer(old, text)
        self._replace(place, [message])
        self.writer.write(lambda store: store.add_message(message), self.stored.emit)
        return True

    def regenerate(
        self, message_id: str | None = None, settings: ChatSettings | None = None, *, seed: int | None = None
    ) -> bool:
        """Write an answer again, by default the last, as a new version. ``settings`` and ``seed`` are for this answer
        alone."""
        if self.state is ChatState.OPENING and message_id is None:
            self._queued = _Queued("")
            self._refresh()
            return True
        place = len(self.messages) - 1 if message_id is None else self.place(message_id)
        if self.state is not ChatState.IDLE or place is None or place < 0:
            return False
        if self.messages[place].role == "user":
            place += 1
        if place == 0:
            return False
        self.asking.emit()
        self._replaced = self.messages[place:]
        version = self._replaced[0].versions + 1 if self._replaced else 1
        self._replace(place, [])
        live = self._answer_to(self.messages, settings, version=version, seed=seed)
        live.is_stored = True  # what it answers was written, or is to be written, before
        self._await(live)
        return True

    def can_continue(self, message_id: str) -> bool:
        """Whether an answer can go on: the last one, cut before its end, whose tokens are known."""
        place = self._idle_place(message_id)
        return place is not None and place == len(self.messages) - 1 and can_continue(self.messages[place])

    def continue_answer(self, message_id: str, tokens: Sequence[int] | None = None, *, by_text: bool = False) -> bool:
        """Let a cut answer go on from its last token. ``tokens``: those of an answer that has none stored. ``by_text``:
        a server goes on with it, which has no tokens."""
        place = self._idle_place(message_id)
        if place is None or place != len(self.messages) - 1 or place == 0:
            return False
        old = self.messages[place]
        if tokens is not None or by_text:
            is_known = by_text or not old.calls  # else the tokens are only those behind the calls
            old = replace(
                old, tokens=array("i", tokens or ()), provenance_json=old.provenance_json if is_known else "[]"
            )
        if not (was_cut(old) if by_text else can_continue(old)):
            return False
        self.asking.emit()
        live = self._answer_to(self.messages[:place], seed=old.seed, continued=old)
        live.is_stored = True
        self._replaced = [self.messages[place]]
        self._await(live)
        return True

    def stop(self) -> None:
        """Stop the answer that is being written or waited for."""
        if self.live is not None:
            self._answers.stop(self.live)
        elif self._queued is not None:
            if self._queued.is_message:
                self._queued.is_answered = False
            else:
                self._queued = None
                self._refresh()

    def stop_thinking(self) -> None:
        """Have the model stop thinking and answer."""
        if self.live is not None:
            self._answers.stop_thinking(self.live)

    def decide(self, call_id: str, decision: Decision, reason: str = "") -> None:
        """Decide about a waiting call; ``reason``: why it is denied, for the model."""
        if self.live is not None:
            self._answers.decide(self.live, call_id, decision, reason)

    def choose_version(self, message_id: str, step: int) -> bool:
        """Show an earlier (negative) or later version of a message, and what followed it."""
        if self._idle_place(message_id) is None:
            return False
        self._read(lambda store: store.select_version(message_id, step), self._show)
        return True

    def show_message(self, message_id: str) -> bool:
        """Show the branch that this message is on."""
        if self.state is not ChatState.IDLE:
            return False
        if self.place(message_id) is None:
            self._read(lambda store: store.select_version(message_id, 0), self._show)
        return True

    def delete(
        self, message_id: str, deleted: Callable[[Deletion], None] | None = None, *, following: bool = False
    ) -> bool:
        """Delete a message, or it and all that follow; ``deleted`` gets what `undo_deletion` needs."""
        if self._idle_place(message_id) is None:
            return False
        chat_id = self.id

        def delete_and_read(store: ChatStore) -> tuple[Deletion, list[StoredMessage]]:
            return store.delete_message(message_id, following), store.branch(chat_id)

        def show(found: tuple[Deletion, list[StoredMessage]]) -> None:
            self._show(found[1])
            self.stored.emit()
            if deleted is not None:
                deleted(found[0])

        self._read(delete_and_read, show)
        return True

    def undo_deletion(self, deletion: Deletion, not_done: Callable[[], None] | None = None) -> bool:
        """Bring back what `delete` took away; ``not_done`` is called where the store refuses."""
        if self.state is not ChatState.IDLE:
            return False
        chat_id = self.id

        def undo(store: ChatStore) -> list[StoredMessage]:
            store.undo_deletion(deletion)
            return store.branch(chat_id)

        def show(branch: list[StoredMessage]) -> None:
            self._show(branch)
            self.stored.emit()

        self._read(undo, show, not_done)
        return True

    def rename(self, title: str) -> None:
        """Its title in the list was changed."""
        self.title = title
        self.settings_changed.emit()

    def set_settings(self, settings: ChatSettings) -> None:
        """Use these from the next answer on. Does nothing before the chat's own have been read."""
        if not self._is_read:
            return
        self._has_chosen = True
        if settings == self.settings:
            return
        self.settings = settings
        if not self.is_new:
            chat_id, text = self.id, settings.to_json()
            self.writer.write(lambda store: store.set_settings(chat_id, text), replaces="settings")
        self.settings_changed.emit()

    def follow(self, defaults: ChatSettings) -> None:
        """The defaults have changed: use them, unless the user has chosen settings for this chat."""
        if not self._has_chosen and defaults != self.settings:
            self.settings = defaults
            self.settings_changed.emit()

    def _idle_place(self, message_id: str) -> int | None:
        return self.place(message_id) if self.state is ChatState.IDLE else None

    # ------------------------------------------------------------ asking

    def _ask(
        self, text: str, attachments: tuple[Attachment, ...], place: int | None = None, *, is_answered: bool = True
    ) -> None:
        """A message of the user at this place, by default the end, and an answer to it."""
        self.asking.emit()
        at = len(self.messages) if place is None else place
        replaced = None if place is None else self.messages[place]
        question = new_question(self.id, text, attachments, self.messages[:at], replaced)
        self._replaced = []
        self._replace(at, [question])
        live = self._answer_to(self.messages) if is_answered else None

        def written() -> None:
            self.stored.emit()
            if live is not None and live is self.live:
                live.is_stored = True
                self._answers.go_on()

        first_settings = self.settings.to_json() if self.is_new else None
        write = self.unsent.question_writer(question, first_settings=first_settings, is_sent=place is None)
        self.writer.write(write, written)
        if self.is_new:
            self.is_new, self.title, self._has_chosen = False, title_for(question), True
            self.unsent.key, self.unsent.is_known = self.id, True
            self.created.emit()
            self.settings_changed.emit()
        if live is not None:
            self._await(live)

    def _answer_to(
        self,
        branch: Sequence[StoredMessage],
        settings: ChatSettings | None = None,
        *,
        version: int = 1,
        seed: int | None = None,
        continued: StoredMessage | None = None,
    ) -> LiveAnswer:
        return LiveAnswer(
            branch,
            settings or self.settings,
            version=version,
            seed=seed,
            continued=continued,
            is_private=self.is_temporary,
            parent=self,
        )

    def _await(self, live: LiveAnswer) -> None:
        self.live = live
        live.begun.connect(self._on_begun)
        live.calls_changed.connect(self._on_calls_changed)
        live.images_returned.connect(self._keep_images)
        live.ended.connect(self._on_ended)
        live.withdrawn.connect(self._on_withdrawn)
        self._refresh()
        self._answers.add(live)

    @Slot()
    def _on_begun(self) -> None:
        live = self.live
        assert live is not None and live.message is not None
        message = live.message
        if self.messages[-1].id == message.id:  # it goes on
            self._replace(len(self.messages) - 1, [message])
            self.writer.write(lambda store: store.resume_answer(message.id))
        else:
            self._replace(len(self.messages), [message])
            self.writer.write(lambda store: store.add_message(message))
        self._replaced = []
        self.writer.begin_answer(live)
        self._refresh()
        self.answer_begun.emit()

    def _keep_images(self, images: Sequence[ResultImage], kept: Callable[[list[Attachment], list[str]], None]) -> None:
        from app.ui.chat.images import image_content  # few chats need it

        def keep(store: ChatStore) -> tuple[list[Attachment], list[str]]:
            found: list[Attachment] = []
            problems: list[str] = []
            for place, image in enumerate(images, 1):
                try:
                    found.append(store.keep(image_content(image.data, f"image {place}")))
                except KnownError as error:
                    problems.append(f"({error})")
            return found, problems

        self.writer.read(keep, lambda found: kept(*found), lambda error: kept([], [f"({error})"]))

    @Slot()
    def _on_calls_changed(self) -> None:
        """Every change to a call is stored at once, except its progress."""
        live = self.live
        if live is not None and live.message is not None and live.calls is not self._saved_calls:
            self._saved_calls = live.calls
            self.writer.save_now(live)
        self._refresh()

    @Slot()
    def _on_ended(self) -> None:
        live, self.live = self.live, None
        assert live is not None and live.message is not None
        message = live.message
        self.writer.end_answer()
        self.messages[-1] = message
        self.writer.write(lambda store: store.finish_answer(message), self.stored.emit)
        self._refresh()
        self.answer_ended.emit()
        live.deleteLater()

    @Slot()
    def _on_withdrawn(self) -> None:
        live, self.live = self.live, None
        replaced, self._replaced = self._replaced, []
        if replaced and self.messages[-1].id != replaced[-1].id:
            self._replace(len(self.messages), replaced)
        self._refresh()
        if live is not None:
            live.deleteLater()

    # ------------------------------------------------------------ the end

    def close_store(self) -> None:
        """End a temporary chat: stop its answer and close its private store."""
        if self.live is not None:
            self._answers.abandon(self.live)
        self._chat_store.close(wait=False)  # nothing of it is to be kept

    def shut_down(self) -> None:
        """The window closes, and `Answers.clear` was called: everything goes to the store."""
        queued, self._queued = self._queued, None
        self.writer.end_answer()
        self.unsent.finish(*(("", ()) if queued is None else (queued.text, queued.attachments)))
        self.writer.save_again()


def _unsent(store: ChatStore, chat_id: str | None) -> _Unsent:
    return store.unsent(chat_id), store.unsent_attachments(chat_id)
