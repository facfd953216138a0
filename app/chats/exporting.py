"""Writes chats to files, in the formats of `app.chats.formats.writing`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path

from app.chats.formats.records import ChatRecord
from app.chats.formats.writing import WRITE, WriteFormat
from app.helper import Helper, HelperError
from app.helper.messages import RenderMarkdown
from app.storage.files import write_export
from app.system import Canceled, KnownError

_AT_ONCE_CHARACTERS = 256 * 1024
_SIGN_CHARACTERS = 2000
"""The characters that each start of a formula counts as, because drawing formulas is slow."""
_UNTITLED = "chat"
_LONGEST_NAME = 60


class Export:
    """Exports chats. May be used in any thread, one export at a time.

    ``read`` returns a chat by its id; ``helper`` renders Markdown; ``is_canceled`` and ``on_progress`` (chats written
    so far) are called between chats.
    """

    def __init__(
        self,
        read: Callable[[str], ChatRecord],
        helper: Helper,
        is_canceled: Callable[[], bool] = lambda: False,
        on_progress: Callable[[int], object] = lambda _done: None,
    ) -> None:
        self._read = read
        self._helper = helper
        self._is_canceled = is_canceled
        self._on_progress = on_progress

    def to_file(self, chat_ids: Sequence[str], format_name: str, path: Path) -> None:
        """Write chats to one file, completely or not at all. Raises `KnownError` and `Canceled`."""
        try:
            write_export(path, self.parts(chat_ids, format_name))
        except OSError as error:
            raise _not_written(path, error) from error

    def to_folder(self, chat_ids: Sequence[str], format_name: str, folder: Path) -> None:
        """Write each chat to its own file; never replaces a file. Raises `KnownError` and `Canceled`."""
        wanted = WRITE[format_name]
        for done, chat in enumerate(self._chats(chat_ids)):
            path = unused(folder / file_name(chat.title, wanted.suffix))
            text = "".join(wanted.text_of([chat], self.render))
            try:
                write_export(path, text.encode("utf-8", "replace"))
            except OSError as error:
                raise _not_written(path, error) from error
            self._on_progress(done + 1)

    def parts(self, chat_ids: Sequence[str], format_name: str) -> Iterator[bytes]:
        """The content of one file with these chats, piece by piece."""
        wanted: WriteFormat = WRITE[format_name]
        for done, part in enumerate(wanted.text_of(self._chats(chat_ids), self.render)):
            self._on_progress(min(done, len(chat_ids)))
            yield part.encode("utf-8", "replace")

    def render(self, texts: Sequence[str]) -> list[str]:
        """Markdown as HTML; shown as plain text if rendering takes too long."""
        html: list[str] = []
        start = 0
        while start < len(texts):
            end, size = start + 1, _effort(texts[start])
            while end < len(texts) and size + _effort(texts[end]) <= _AT_ONCE_CHARACTERS:
                size += _effort(texts[end])
                end += 1
            html += self._rendered(texts[start:end])
            start = end
        return html

    def _rendered(self, texts: Sequence[str]) -> list[str]:
        try:
            found = self._helper.ask(RenderMarkdown(list(texts))).html
            return found if len(found) == len(texts) else [_as_it_is(text) for text in texts]
        except HelperError:
            return [_as_it_is(texts[0])] if len(texts) == 1 else [self._rendered([text])[0] for text in texts]

    def _chats(self, chat_ids: Sequence[str]) -> Iterator[ChatRecord]:
        for chat_id in chat_ids:
            if self._is_canceled():
                raise Canceled
            yield self._read(chat_id)


def _effort(text: str) -> int:
    """The estimated cost of rendering a text, in characters without formulas."""
    return len(text) + _SIGN_CHARACTERS * (text.count("$") + text.count("\\(") + text.count("\\["))


def file_name(title: str, suffix: str) -> str:
    """A file name that every system accepts."""
    allowed = "".join(character if character.isalnum() or character in " -_" else " " for character in title)
    return f"{' '.join(allowed.split())[:_LONGEST_NAME] or _UNTITLED}{suffix}"


def unused(path: Path) -> Path:
    """This path, with a number before its suffix if it is taken."""
    number, found = 2, path
    while found.exists():
        found, number = path.with_stem(f"{path.stem} {number}"), number + 1
    return found


def _as_it_is(text: str) -> str:
    return f"<pre>{escape(text)}</pre>\n" if text else ""


def _not_written(path: Path, error: OSError) -> KnownError:
    return KnownError(f"The chats couldn't be exported to {path}: {error.strerror or error}.")
