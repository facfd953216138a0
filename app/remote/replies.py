"""Parses streamed answers of all kinds of servers: lines, their JSON, and marks around thinking."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.protocol.tools import ID_LENGTH, MAX_TOOLS, ToolCall
from app.remote.figures import ServerFigures, in_reply
from app.remote.http import RemoteError, first, mapping, number, parsed, real, reported, text

_NANOSECONDS = 1e-9


@dataclass(frozen=True)
class Part:
    """The content of one line of a streamed answer."""

    text: str = ""
    thinking: str = ""
    finish: str = ""
    """The server's finish reason."""
    stop: str = ""
    """The stop string that was found."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """Token counts, as far as they are sent: ``prompt``, ``completion``, ``cached``, ``thinking``."""
    pass_mark: float | None = None
    """llama-server's decoding time so far, the same for all tokens of a verify pass."""
    prompt_speed: float | None = None
    """Prompt tokens per second, by the server's clock."""
    progress: tuple[int, int] | None = None
    """Processed prompt tokens, and the total."""
    cached: int | None = None
    """Prompt tokens from the server's cache, sent during prompt processing."""
    figures: ServerFigures | None = None
    calls: Sequence[Any] = ()
    """Pieces of tool calls, for `Calls`."""
    error: RemoteError | None = None


def part_of(data: bytes, host: str) -> Part | None:
    """The content of a line; ``None`` if it isn't a JSON object."""
    root = parsed(data)
    if not isinstance(root, dict):
        return None
    if root.get("error"):
        return Part(error=reported(root, 0, host))
    if text(root.get("object")) == "error":
        return Part(error=reported(root, 0, host))
    choice = first(root.get("choices"))
    # Ollama's own API has a message instead of choices, and so do answers that aren't streamed.
    delta = mapping(choice.get("delta")) or mapping(choice.get("message")) or mapping(root.get("message"))
    timings, progress = mapping(root.get("timings")), mapping(root.get("prompt_progress"))
    total, processed = number(progress.get("total")), number(progress.get("processed"))
    return Part(
        text=_words(delta.get("content")) or text(choice.get("text")),
        thinking=text(delta.get("reasoning_content")) or text(delta.get("reasoning")) or text(delta.get("thinking")),
        finish=text(choice.get("finish_reason")) or _ollama_end(root),
        stop=text(choice.get("stop_reason")) or text(choice.get("matched_stop")),
        usage=_usage(root, timings),
        pass_mark=real(timings.get("predicted_ms")) if timings.get("predicted_n") else None,
        prompt_speed=real(timings.get("prompt_per_second")) or _ollama_prompt_speed(root),
        progress=None if total is None or processed is None else (min(processed, total), total),
        cached=number(progress.get("cache")),
        figures=in_reply(root, choice),
        calls=calls if isinstance(calls := delta.get("tool_calls"), list) else (),
    )


def _words(content: object) -> str:
    """A delta's content, which some servers send as a list of parts."""
    if isinstance(content, list):
        return "".join(text(mapping(one).get("text")) for one in content)
    return text(content)


def _usage(root: dict[str, Any], timings: dict[str, Any]) -> dict[str, int]:
    usage = mapping(root.get("usage"))
    found: dict[str, int | None] = {}
    if usage:
        found = {
            "prompt": number(usage.get("prompt_tokens")),
            "completion": number(usage.get("completion_tokens")),
            "cached": number(mapping(usage.get("prompt_tokens_details")).get("cached_tokens")),
            "thinking": number(mapping(usage.get("completion_tokens_details")).get("reasoning_tokens")),
        }
    elif timings:
        cached, processed = number(timings.get("cache_n")), number(timings.get("prompt_n"))
        prompt = None if cached is None or processed is None else cached + processed
        found = {"prompt": prompt, "completion": number(timings.get("predicted_n")), "cached": cached}
    elif root.get("done") is True:
        found = {"prompt": number(root.get("prompt_eval_count")), "completion": number(root.get("eval_count"))}
    return {name: count for name, count in found.items() if count is not None}


def _ollama_end(root: dict[str, Any]) -> str:
    return (text(root.get("done_reason")) or "stop") if root.get("done") is True else ""


def _ollama_prompt_speed(root: dict[str, Any]) -> float | None:
    tokens, taken = number(root.get("prompt_eval_count")), number(root.get("prompt_eval_duration"))
    return tokens / (taken * _NANOSECONDS) if tokens and taken else None


# Tool calls, which come in pieces. Some servers leave out the index, or give all calls the same one.


@dataclass
class _Call:
    index: int | None
    id: str
    name: str = ""
    arguments: str = ""


class Calls:
    """Puts the calls of an answer together."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, piece: Mapping[str, Any]) -> None:
        """Raises `RemoteError` if there are too many."""
        function, index, identity = mapping(piece.get("function")), number(piece.get("index")), text(piece.get("id"))
        name, arguments = text(function.get("name")), function.get("arguments")
        call = self._begun(index, identity, name)
        if call is None:
            if len(self._calls) == MAX_TOOLS:
                raise RemoteError("not_a_server", "The answer has too many tool calls to be genuine.")
            self._calls.append(call := _Call(index, identity))
        call.id, call.name = call.id or identity, call.name or name
        call.arguments += json.dumps(arguments) if isinstance(arguments, dict) else text(arguments)

    def _begun(self, index: int | None, identity: str, name: str) -> _Call | None:
        """The call that a piece continues."""
        if index is None and not identity:
            return None if name or not self._calls else self._calls[-1]
        found = [one for one in self._calls if (one.index == index if index is not None else one.id == identity)]
        call = found[-1] if found else None
        if call and ((identity and call.id not in ("", identity)) or (name and call.name not in ("", name))):
            return None
        return call or (self._calls[-1] if self._calls and not identity and not name else None)

    def all(self, used: Collection[str]) -> list[ToolCall]:
        """The calls; an id that is unusual or ``used`` is replaced by one that every template accepts. Raises
        `RemoteError` for a call without a name, or with arguments that aren't an object."""
        found, taken = list[ToolCall](), set(used)
        for call in self._calls:
            if not call.name or not isinstance(parsed((call.arguments or "{}").encode("utf-8", "replace")), dict):
                raise RemoteError("refused", "The model wrote a tool call without a name, or with broken arguments.")
            is_usual = re.fullmatch(r"[\w.:-]{1,64}", call.id, re.ASCII) and call.id not in taken
            taken.add(identity := call.id if is_usual else secrets.token_hex(ID_LENGTH)[:ID_LENGTH])
            found.append(ToolCall(identity, call.name, call.arguments or "{}"))
        return found


# The lines of a streamed answer: server-sent events, or Ollama's without a prefix.

DONE = b"[DONE]"
_PREFIXES = (b"data:", b"error:")
"""Older llama-servers report errors on ``error:`` lines."""


class Lines:
    """Cuts a stream, whose chunks may end anywhere, into the JSON in its lines."""

    def __init__(self, most: int, host: str) -> None:
        """``most``: the longest line, in bytes."""
        self._most = most
        self._host = host
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The JSON, or `DONE`, of each completed line; skips comments (pings) and other fields.

        Raises `RemoteError` for a line that is too long.
        """
        start = len(self._rest)
        self._rest += piece
        end = self._rest.rfind(b"\n", start)
        if end < 0:
            if len(self._rest) > self._most:
                raise RemoteError("not_a_server", f"{self._host} sent a line that is too long to be genuine.")
            return []
        lines = bytes(self._rest[:end]).split(b"\n")
        del self._rest[: end + 1]
        return [found for line in lines if (found := _content(line))]

    def end(self) -> list[bytes]:
        """The last line, if it has no line break."""
        found = _content(bytes(self._rest))
        self._rest.clear()
        return [found] if found else []


def _content(line: bytes) -> bytes:
    line = line.strip()
    for prefix in _PREFIXES:
        if line.startswith(prefix):
            return line[len(prefix) :].strip()
    return line if line.startswith(b"{") else b""


# Some servers send thinking as part of the answer, between ``<think>`` and ``</think>``.

_OPENING, _CLOSING = "<think>", "</think>"


class ThinkMarks:
    """Separates thinking from an answer that begins with ``<think>``; leaves others unchanged."""

    def __init__(self) -> None:
        self._held = ""
        """Text that may be part of a mark."""
        self._is_open: bool | None = None
        """``None``: the answer hasn't begun; ``False``: no more thinking."""

    def split(self, text: str) -> tuple[str, str]:
        """Thinking and answer in more text, without marks. Text that may be part of a mark is held back."""
        if self._is_open is False:
            return "", text
        self._held += text
        if self._is_open is None and not self._opens():
            return "", ""
        if not self._is_open:
            return "", self._rest()
        thought, found, answer = self._held.partition(_CLOSING)
        if found:
            self._held, self._is_open = "", False
            return thought, answer.lstrip("\n")
        kept = _overlap(self._held, _CLOSING)
        thought, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return thought, ""

    def rest(self) -> tuple[str, str]:
        """Thinking and answer in the text held back at the end."""
        was_open, rest = self._is_open, self._rest()
        return (rest, "") if was_open else ("", rest)

    def _opens(self) -> bool:
        """Whether there is enough text to tell how the answer begins."""
        begun = self._held.lstrip()
        if begun.startswith(_OPENING):
            self._held, self._is_open = begun[len(_OPENING) :].lstrip("\n"), True
        elif not _OPENING.startswith(begun):
            self._is_open = False
        return self._is_open is not None

    def _rest(self) -> str:
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, mark: str) -> int:
    """How many characters at the end of ``text`` begin ``mark``."""
    return next((length for length in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:length])), 0)
