"""Imports chats: reads other apps' files in a helper process, summarizes them, and adds new chats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app import words
from app.chats.formats import slipstream
from app.chats.formats.reading import TITLES
from app.chats.formats.records import Batch, ChatRecord
from app.chats.transfer import Added
from app.helper import READING_SECONDS, Helper, HelperError, NotStarted, TookTooLong, TooMuchMemory
from app.helper.messages import ChatsNotRead, ReadChats, ReadMoreChats
from app.system import Canceled, KnownError

_SENTENCES: dict[str, tuple[str, str]] = {
    "images": ("1 picture", "{} pictures"),
    "files": ("1 attachment without text", "{} attachments without text"),
    "recordings": ("1 recording of sound or video", "{} recordings of sound or video"),
    "references": ("1 reference to a source", "{} references to sources"),
    "widgets": ("1 interactive part of an answer", "{} interactive parts of answers"),
    "changes": ("1 change of a document", "{} changes of documents"),
    "tools": ("1 call or result of a tool", "{} calls or results of tools"),
    "failed": ("1 answer that failed there", "{} answers that failed there"),
    "hidden": ("1 message that was hidden there, too", "{} messages that were hidden there, too"),
    "empty": ("1 chat without messages", "{} chats without messages"),
    "damaged": ("1 entry that is damaged or isn't a chat", "{} entries that are damaged or aren't chats"),
    "newer": ("1 chat from a newer version of Slipstream", "{} chats from a newer version of Slipstream"),
    "rest": ("the rest of 1 file, damaged or cut off", "the rest of {} files, damaged or cut off"),
    "too_large": ("1 chat that is too large", "{} chats that are too large"),
    "too_deep": ("the rest of 1 file, nested too deeply", "the rest of {} files, nested too deeply"),
    "encoding": ("some characters that aren't UTF-8 and became �",) * 2,
    "unreadable": ("1 unreadable archive, or file in one", "{} unreadable archives, or files in them"),
    "unsafe_names": ("1 file with an unsafe name", "{} files with unsafe names"),
    "encrypted": ("1 encrypted file", "{} encrypted files"),
    "too_much": ("an archive that becomes far too large when it is unpacked",) * 2,
}
"""What is left out and why, in the singular and plural."""


@dataclass
class Summary:
    """What some files contain."""

    chats: int = 0
    messages: int = 0
    versions: int = 0
    """Messages outside the shown branches."""
    sources: Counter[str] = field(default_factory=Counter)
    """The number of chats of each format, by its title."""
    left_out: Counter[str] = field(default_factory=Counter)
    """How many things aren't imported, by `app.chats.formats.records.Reason`."""
    other_files: int = 0
    """The number of files without chats."""
    first: float | None = None
    last: float | None = None
    """When the oldest chat began and the newest last changed; seconds since 1970."""

    def add(self, batch: Batch) -> None:
        self.left_out.update(batch.left_out)
        self.other_files += batch.other_files
        for chat in batch.chats:
            self.chats += 1
            self.messages += len(chat.messages)
            self.versions += len(chat.messages) - len(chat.branch())
            self.sources[TITLES.get(chat.source, chat.source)] += 1
            dates = [at for at in (chat.created_at, chat.updated_at) if at is not None]
            self.first = min([*dates, *([] if self.first is None else [self.first])], default=None)
            self.last = max([*dates, *([] if self.last is None else [self.last])], default=None)

    def folder(self) -> str:
        """The folder name for the imported chats; empty for our own format, which has folders."""
        if list(self.sources) == [TITLES[slipstream.NAME]]:
            return ""
        return f"Imported from {next(iter(self.sources))}" if len(self.sources) == 1 else "Imported chats"

    def not_imported(self) -> list[str]:
        """What is left out, as parts of a sentence."""
        found = [
            _SENTENCES[reason][min(count, 2) - 1].format(words.number(count))
            for reason in _SENTENCES
            if (count := self.left_out[reason])
        ]
        if self.other_files:
            found.append(f"{words.count(self.other_files, 'file')} without chats")
        return found


@dataclass
class Imported:
    """The result of an import."""

    added: list[str] = field(default_factory=list)
    """Ids in the store, as in the other lists."""
    known: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    is_complete: bool = False
    """``False`` if it was canceled."""

    def sentence(self) -> str:
        """The result in a sentence for the user."""
        parts = [words.count(len(self.added), "chat was imported", "chats were imported")]
        if self.known:
            parts.append(words.count(len(self.known), "chat was already here", "chats were already here"))
        if self.restored:
            parts.append(
                words.count(len(self.restored), "chat is back from the trash", "chats are back from the trash")
            )
        said = words.listed(parts)
        return f"{said}." if self.is_complete else f"The import was stopped: {said}. Import again to get the rest."


class Import:
    """Reads chats from files and folders; twice, if a summary is wanted before anything is added.

    ``is_canceled`` is called between batches, ``on_progress`` gets the fraction that is done.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        is_canceled: Callable[[], bool] = lambda: False,
        on_progress: Callable[[float], object] = lambda _share: None,
    ) -> None:
        self._paths = paths
        self._is_canceled = is_canceled
        self._on_progress = on_progress

    def summary(self) -> Summary:
        """What would be imported. Raises `KnownError`, `Canceled`."""
        found = Summary()
        for batch in self._batches():
            found.add(batch)
        return found

    def run(self, add: Callable[[list[ChatRecord]], Added]) -> tuple[Imported, Summary]:
        """Add the chats with ``add``; what was added before a cancellation stays. Raises `KnownError`."""
        done, found = Imported(), Summary()
        try:
            for batch in self._batches():
                if batch.chats:
                    added = add(batch.chats)
                    done.added += added.added
                    done.known += added.known
                    done.restored += added.restored
                found.add(batch)
        except Canceled:
            return done, found
        done.is_complete = True
        return done, found

    def _batches(self) -> Iterator[Batch]:
        helper = Helper(READING_SECONDS)
        try:
            request: ReadChats | ReadMoreChats = ReadChats([str(path.absolute()) for path in self._paths])
            while True:
                if self._is_canceled():
                    raise Canceled
                answer = helper.ask(request)
                if isinstance(answer, ChatsNotRead):
                    name = answer.name or self._paths[0].name
                    raise KnownError(f"{name} can't be read: {answer.reason}.")
                yield answer.batch
                self._on_progress(answer.batch.read / max(answer.batch.total, 1))
                if answer.batch.is_over:
                    return
                request = ReadMoreChats()
        except HelperError as error:
            raise KnownError(_sentence(error)) from error
        finally:
            helper.stop()


def _sentence(error: HelperError) -> str:
    match error:
        case TookTooLong():
            return "Reading the files takes too long. They may be on a drive that doesn't respond, or damaged."
        case TooMuchMemory():
            return "Something in the files needs too much memory to be read. They may be damaged."
        case NotStarted():
            return f"The files can't be read because a process couldn't be started: {error}."
    return "The files can't be read: the process that reads them ended unexpectedly."
