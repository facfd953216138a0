"""What the user writes: what a chat's composer contains, kept in the store so that nothing typed is ever lost; the
question it becomes; another wording of an answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chats.model import Attachment, StoredMessage, to_json
from app.chats.store import ChatStore, new_id
from app.ui.chat.footer import figures_of
from app.ui.chat.writer import ChatWriter

INTERVAL_MS = 500


def joined(first: str, second: str) -> str:
    """Both texts, one below the other; only one of them if it begins or ends with the other."""
    if not second.strip() or first == second or first.endswith(f"\n{second}"):
        return first
    return second if not first.strip() or second.startswith(first) else f"{first}\n{second}"


class UnsentMessage(QObject):
    """One for each open chat.

    Attributes:
        key: The id of the chat under which it is stored; ``None`` while the chat doesn't exist yet.
        text: As it is now.
        attachments: So are these.
        reading: Names of files that are still being read, to be attached.
        is_known: Whether what is stored has been read. Until then nothing is saved, so that nothing is overwritten.

    Signals:
        typed: The text is a different one.
        replaced: So it is, and it wasn't typed: the composer has to show it.
        attachments_changed: Others are attached.
    """

    typed = Signal()
    replaced = Signal(str)
    attachments_changed = Signal()

    def __init__(self, writer: ChatWriter, key: str | None, parent: QObject, *, is_known: bool) -> None:
        super().__init__(parent)
        self.key = key
        self.text = ""
        self.attachments: tuple[Attachment, ...] = ()
        self.reading: dict[int, str] = {}
        self._begun = 0
        self.is_known = is_known
        self._writer = writer
        self._timer = QTimer(self, interval=INTERVAL_MS, singleShot=True)
        self._timer.timeout.connect(self.save)

    def type(self, text: str) -> None:
        """The user typed this; it is saved a moment later."""
        if text != self.text:
            self.text = text
            self._timer.start()
            self.typed.emit()

    def replace(self, text: str) -> None:
        """Put this into the composer."""
        self.type(text)
        self.replaced.emit(text)

    def attach(self, attachments: Sequence[Attachment]) -> None:
        """Let these go with the message, in the place of those that did."""
        if tuple(attachments) != self.attachments:
            self.attachments = tuple(attachments)
            self._save_attachments()
            self.attachments_changed.emit()

    def begin_reading(self, name: str) -> int:
        """A file of this name is being read. Returns its number."""
        self._begun += 1
        self.reading[self._begun] = name
        self.attachments_changed.emit()
        return self._begun

    def end_reading(self, number: int) -> bool:
        """It is read, or isn't wanted any more. Returns whether it was wanted until now."""
        was_wanted = self.reading.pop(number, None) is not None
        if was_wanted:
            self.attachments_changed.emit()
        return was_wanted

    def take(self) -> tuple[str, tuple[Attachment, ...]]:
        """Remove the message, which will be stored elsewhere. Returns its text and attachments."""
        taken = self.text, self.attachments
        self.text, self.attachments = "", ()
        self._timer.stop()
        if taken[1]:
            self.attachments_changed.emit()
        return taken

    def give_back(self, text: str, attachments: Sequence[Attachment]) -> None:
        """A message that wasn't sent stands before what was written since."""
        self.attach([*attachments, *self.attachments])
        self.replace(joined(text, self.text))

    def add_stored(self, stored: str, attachments: Sequence[Attachment]) -> None:
        """What is stored has been read; keep it together with what was written in the meantime."""
        self.is_known = True
        typed, self.text = self.text, stored
        self.replace(joined(stored, typed))
        if self.text != stored:
            self.save()  # another chat may be shown by now
        added = [one for one in self.attachments if one not in attachments]
        self.attachments = (*attachments, *added)
        if added:
            self._save_attachments()
        self.attachments_changed.emit()

    @Slot()
    def save(self) -> None:
        """Save it now."""
        self._timer.stop()
        if self.is_known:
            key, text = self.key, self.text
            self._writer.write(lambda store: store.set_unsent(key, text), replaces="unsent")

    def _save_attachments(self) -> None:
        if self.is_known:
            key, attachments = self.key, self.attachments
            self._writer.write(lambda store: store.set_unsent_attachments(key, attachments), replaces="unsent files")

    def question_writer(
        self, question: StoredMessage, *, first_settings: str | None, is_sent: bool
    ) -> Callable[[ChatStore], None]:
        """What stores a question, and what is left here if it came from here (``is_sent``).

        ``first_settings``: the settings of the chat that begins with it; ``None``: the store has the chat.
        """
        chat_id, is_first = question.chat_id, first_settings is not None
        text, attachments, knows_unsent = self.text, self.attachments, self.is_known

        def write(store: ChatStore) -> None:
            with store.together():  # a kill in between would leave the text in both places
                if first_settings is not None:
                    store.create_chat(chat_id=chat_id, settings=first_settings)
                store.add_message(question)
                if is_sent and knows_unsent:
                    for one in (None, chat_id) if is_first else (chat_id,):
                        store.set_unsent(one, text if one else "")
                        if question.attachments:
                            store.set_unsent_attachments(one, attachments if one else ())

        return write

    def save_if_changed(self) -> None:
        """Save it now, unless that has been done."""
        if self._timer.isActive():
            self.save()

    def is_saved(self) -> bool:
        """Whether `ChatWriter` was given the text as it is now."""
        is_stored = self.is_known or not (self.text or self.attachments)
        return is_stored and not self.reading and not self._timer.isActive()

    def finish(self, not_sent: str, attachments: Sequence[Attachment] = ()) -> None:
        """The window closes. Save the message together with one that was to be sent but wasn't."""
        typed = joined(not_sent, self.text)
        if self.is_known and not not_sent:
            self.save_if_changed()
        elif typed:
            key = self.key
            self._writer.write(lambda store: store.set_unsent(key, joined(store.unsent(key), typed)))
        added = [*attachments, *(() if self.is_known else self.attachments)]
        if added:
            key = self.key
            self._writer.write(
                lambda store: store.set_unsent_attachments(key, [*store.unsent_attachments(key), *added])
            )


def new_question(
    chat_id: str,
    text: str,
    attachments: tuple[Attachment, ...],
    before: Sequence[StoredMessage],
    in_place_of: StoredMessage | None = None,
) -> StoredMessage:
    """A message of the user behind ``before``; ``in_place_of``: the one that it is another version of."""
    versions = 1 if in_place_of is None else in_place_of.versions + 1
    return StoredMessage(
        *(new_id(), chat_id, before[-1].id if before else None, "user", text, "complete", time.time()),
        version=versions,
        versions=versions,
        attachments=attachments,
    )


def edited_answer(old: StoredMessage, text: str) -> StoredMessage:
    """The same answer in the user's wording, as its newest version."""
    return replace(
        old,
        id=new_id(),
        text=text,
        status="complete",
        created_at=time.time(),
        seed=None,
        finish_reason=None,
        figures_json=to_json({"edited": True, "thinking_s": figures_of(old.figures).thinking_seconds}),
        provenance_json="[]",
        tokens=(),
        version=old.versions + 1,
        versions=old.versions + 1,
    )
