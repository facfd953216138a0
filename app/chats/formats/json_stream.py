"""Reads untrusted JSON of any size, one record at a time, and finds text and images in messages.

Takes as much memory as the largest record. Python's own parser finds the end of a value; if the buffer ends inside one,
twice as much is read and parsing starts over.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import io
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec

from app.chats.formats.records import (
    MOST_CALLS_AND_RESULTS,
    AttachmentRecord,
    Ending,
    LeftOut,
    MessageRecord,
    Reason,
    Role,
    StoredCall,
    moved,
)
from app.chats.formats.values import arguments_of, as_json, from_json, items, mapping, mappings, text, without_thinking
from app.protocol.images import HEAD_BYTES, problem_of, read_head

READ_CHARACTERS = 512 * 1024
MOST_CHARACTERS = 32 * 1024 * 1024
"""The largest record that is read."""
_SPACE = re.compile(r"[\s\x1e]*")  # separates JSON values in a text file
_NEXT_LINE = re.compile(r"\n(?=[{\[])")
_LITERAL = 16
"""The parser may stop this far before the end of a truncated literal, such as ``true``, or escape."""
_MOST_DIGITS = 20  # 64 bits and a sign


class Readable(Protocol):
    """What is read: a file, or an archive member."""

    def read(self, size: int, /) -> bytes: ...


class _NoValueError(Exception):
    """The next value in the file can't be read."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class JsonStream:
    """The records of one file. ``left_out`` counts a truncated record at its end, and anything that isn't JSON."""

    def __init__(self, file: Readable, left_out: LeftOut) -> None:
        self._file = file
        self._left_out = left_out
        self._buffer = ""
        self._place = 0
        self._is_over = False
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._is_first = True
        self._parser = json.JSONDecoder(parse_constant=_parse_constant, parse_int=_parse_int)
        self.is_list = False
        """Whether the file is a single list; known after the first look at it."""

    def begins(self) -> str:
        """The first character that isn't a space; empty if there is none."""
        return self._peek()

    def beginning(self, size: int) -> str:
        """About this many characters from the start, without consuming them."""
        while len(self._buffer) < size and self._read_more(READ_CHARACTERS):
            pass
        return self._buffer[:size]

    def rest(self, most: int) -> str | None:
        """All text not yet read; ``None`` if that is more than ``most`` characters."""
        while len(self._buffer) <= most and self._read_more(READ_CHARACTERS):
            pass
        return self._buffer if len(self._buffer) <= most else None

    def records(self) -> Iterator[Any]:
        """The elements of the list if the file is one list, otherwise its values."""
        self.is_list = self._peek() == "["
        if self.is_list:
            yield from self._elements()
        else:
            while self._peek():
                try:
                    yield self._value()
                except _NoValueError as error:
                    if error.reason != "damaged" or not self._skip_line():
                        self._left_out["rest" if error.reason == "damaged" else error.reason] += 1
                        return
                    self._left_out["damaged"] += 1

    def _elements(self) -> Iterator[Any]:
        self._place += 1
        try:
            while (upcoming := self._peek()) and upcoming != "]":
                yield self._value()
                upcoming = self._peek()
                if upcoming == ",":
                    self._place += 1
                elif upcoming != "]":
                    break
            if upcoming != "]":
                self._left_out["rest"] += 1
        except _NoValueError as error:
            self._left_out["rest" if error.reason == "damaged" else error.reason] += 1

    def _peek(self) -> str:
        """The next character that isn't a space, without consuming it."""
        while True:
            found = _SPACE.match(self._buffer, self._place)
            assert found is not None
            self._place = found.end()
            if self._place < len(self._buffer):
                return self._buffer[self._place]
            if not self._read_more(READ_CHARACTERS):
                return ""

    def _value(self) -> Any:
        """Parse the value that begins here. Raises `_NoValueError`."""
        while True:
            try:
                value, end = self._parser.raw_decode(self._buffer, self._place)
            except json.JSONDecodeError as error:
                is_cut = error.pos >= len(self._buffer) - _LITERAL or error.msg.startswith("Unterminated")
                if self._is_over or not is_cut:
                    raise _NoValueError("damaged") from None
            except RecursionError:
                raise _NoValueError("too_deep") from None
            else:
                if end < len(self._buffer) or self._is_over:  # otherwise more digits of a number may follow
                    self._place = end
                    return value
            size = len(self._buffer) - self._place
            if size > MOST_CHARACTERS:
                raise _NoValueError("too_large")
            self._read_more(max(size, READ_CHARACTERS))

    def _skip_line(self) -> bool:
        """Skip to the next line that begins with a bracket, at most a record away; returns whether there is one."""
        skipped = 0
        while (found := _NEXT_LINE.search(self._buffer, self._place)) is None:
            skipped += len(self._buffer) - self._place
            self._place = max(self._place, len(self._buffer) - 1)
            if skipped > MOST_CHARACTERS or not self._read_more(READ_CHARACTERS):
                return False
        self._place = found.end()
        return True

    def _read_more(self, size: int) -> bool:
        """Read about ``size`` more bytes; returns whether there were any."""
        if self._is_over:
            return False
        data = self._file.read(size)
        if self._is_first and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        self._is_first = False
        self._is_over = not data
        self._buffer = self._buffer[self._place :] + self._decoded(data)
        self._place = 0
        return bool(data)

    def _decoded(self, data: bytes) -> str:
        before = self._decoder.getstate()
        try:
            return self._decoder.decode(data, final=not data)
        except UnicodeDecodeError:
            self._left_out["encoding"] = 1
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
            self._decoder.setstate((before[0], 0))
            return self._decoder.decode(data, final=not data)


def _parse_constant(_name: str) -> None:
    """Replaces NaN and the infinities, which aren't JSON."""


def _parse_int(digits: str) -> int | None:
    """An integer; ``None`` for huge ones, which Python parses slowly or not at all."""
    return int(digits) if len(digits) <= _MOST_DIGITS else None


# The parts of messages in other apps' JSON. Images are data URLs there; no other address is ever followed.

_DATA = re.compile(r"data:image/[\w.+-]{1,20};base64,")
_UNNAMED = "Image"
_KINDS = {"image": "images", "audio": "recordings", "video": "recordings", "tool": "tools", "function": "tools"}


def reason_for(kind: object) -> str:
    """The reason under which to count a part that isn't imported, by its kind."""
    name = text(kind).lower()
    return next((reason for part_of, reason in _KINDS.items() if part_of in name), "files")


def parts_of(content: object, left_out: LeftOut) -> tuple[str, list[AttachmentRecord]]:
    """The text and the images of content that is either a string or a list of parts."""
    written, images = [text(content)], list[AttachmentRecord]()
    for one in items(content):
        part = mapping(one)
        if text(part.get("type")).endswith(("text", "refusal")):  # input_text, summary_text …
            written.append(text(part.get("text")) or text(part.get("refusal")))
        elif (image := image_of(part)) is not None:
            images.append(image)
        elif text(one) or text(part.get("text")):  # from a tool: a page or a file
            written += [text(one), "\n".join(filter(None, (text(part.get(key)) for key in ("title", "url", "text"))))]
        else:
            left_out[reason_for(part.get("type"))] += 1
    return "\n\n".join(filter(None, written)), images


def image_from(url: object, name: str = "") -> AttachmentRecord | None:
    """The image in a data URL; ``None`` if it isn't one or can't be used."""
    begins = _DATA.match(written := text(url))
    if begins is None:
        return None
    try:
        data = base64.b64decode(written[begins.end() :], validate=True)
    except (binascii.Error, ValueError):
        return None
    head = read_head(data[:HEAD_BYTES])
    if head is None or problem_of(head, name, len(data)):
        return None
    return AttachmentRecord(
        kind="image",
        name=name or f"{_UNNAMED}.{head.kind}",
        data=data,
        media_type=f"image/{head.kind}",
        width=head.width,
        height=head.height,
    )


def image_of(part: dict[str, Any]) -> AttachmentRecord | None:
    """The image of a message part; newer forms have the URL as a plain string."""
    address = part.get("image_url")
    if part.get("type") == "image" and text(part.get("data")):  # from a tool
        address = f"data:{text(part.get('mimeType'))};base64,{part['data']}"
    return image_from(mapping(address).get("url", address))


def data_url(image: AttachmentRecord) -> str:
    return f"data:{image.media_type or 'image/png'};base64,{base64.b64encode(image.data).decode()}"


def listed(calls: Sequence[StoredCall]) -> list[dict[str, Any]]:
    """Calls in OpenAI's format."""
    found = [(one.id, {"name": one.name, "arguments": one.arguments}) for one in calls]
    return [{"id": call_id, "type": "function", "function": function} for call_id, function in found]


def _apart(before: io.StringIO, written: str) -> str:
    """What to add for another part, separated from those ``before``."""
    return f"\n\n{written}" if before.tell() and written.strip() else written.strip() and written


class Answer:
    """A message built from its parts, in order; tool calls and results keep their places between them."""

    def __init__(self, left_out: LeftOut, text: str = "", thinking: str = "") -> None:
        self._text, self._thinking, self._left_out = io.StringIO(), io.StringIO(), left_out
        self.calls: list[StoredCall] = []
        self.attachments: list[AttachmentRecord] = []
        self.status: Ending = "complete"
        self.write(text)
        self.think(thinking)

    @property
    def text(self) -> str:
        return self._text.getvalue()

    @property
    def thinking(self) -> str:
        return self._thinking.getvalue()

    def write(self, written: str) -> None:
        """Add to the text."""
        self._text.write(written)

    def say(self, written: str) -> None:
        """Add a part to the text."""
        self._text.write(_apart(self._text, written))

    def think(self, written: str) -> None:
        self._thinking.write(_apart(self._thinking, written))

    def call(self, call_id: object, name: object, arguments: object, server: object = "") -> None:
        self._add(call_id, name, arguments=arguments_of(arguments), server=text(server))

    def call_all(self, listed: object) -> None:
        """Add calls in OpenAI's format; they may be JSON text."""
        for one in mappings(from_json(listed) if isinstance(listed, str) else listed):
            call = mapping(one.get("function")) or one
            self.call(one.get("id"), call.get("name"), call.get("arguments"))

    def result(self, call_id: object, returned: object, *, failed: bool = False, name: object = "") -> None:
        """Add the result of a call: text, or parts of any kind."""
        content = mapping(returned).get("content", returned) or ""
        said, images = parts_of(content if isinstance(content, str | list) else as_json(content), self._left_out)
        self.attachments += images
        hashes, state = tuple(one.sha256() for one in images), "failed" if failed else "done"
        self._add(call_id, name, arguments="", result=said, images=hashes, state=state)

    def _add(self, call_id: object, name: object, **more: Any) -> None:
        if len(self.calls) >= MOST_CALLS_AND_RESULTS:
            self._left_out["tools"] += 1
            return
        more |= {"id": str(call_id) if isinstance(call_id, str | int) else "", "name": text(name)}
        self.calls.append(StoredCall(text=self._text.tell(), thinking=self._thinking.tell(), **more))

    def message(self, role: str, created_at: float | None, model: str = "") -> MessageRecord | None:
        """The message, without its place in the chat; ``None`` if it is empty. It is an answer unless the ``role`` is
        ``user``. If an answer has no thinking, text at its beginning between the usual marks becomes the thinking."""
        is_answer, thinking, written = role != "user", self.thinking, self.text
        if is_answer and not thinking.strip():
            thinking, written = without_thinking(written)
        if not (written.strip() or thinking.strip() or self.attachments or self.calls):
            return None
        kind: Role = "assistant" if is_answer else "user"
        found = MessageRecord("", None, kind, written, created_at, thinking, model if is_answer else "", self.status)
        calls = [moved(one, len(written) - self._text.tell()) for one in self.calls]
        return msgspec.structs.replace(found, attachments=self.attachments, calls=calls)
