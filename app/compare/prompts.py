"""Prompt sets for comparisons: the bundled one and the user's files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from app import system, words
from app.protocol.commands import Message
from app.system import KnownError

OWN = "own"
"""The kind of prompts that name none."""
MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_PROMPTS = 1000
MAX_PROMPT_CHARACTERS = 1_000_000
_MAX_KIND_CHARACTERS = 40
_TITLE_CHARACTERS = 60


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A chat to answer; its last message is the user's."""

    kind: str
    messages: list[Message]

    @property
    def title(self) -> str:
        """The first words of the last message, on one line."""
        words = self.messages[-1].content.split()
        title = ""
        for word in words:
            if title and len(title) + 1 + len(word) > _TITLE_CHARACTERS:
                return f"{title} …"
            title = f"{title} {word}".strip()
        return title if len(title) <= _TITLE_CHARACTERS else f"{title[:_TITLE_CHARACTERS]}…"


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a ``.jsonl`` file: either ``prompt`` or ``messages``."""

    kind: str = OWN
    prompt: str | None = None
    messages: list[Message] = []


class _Compared(msgspec.Struct):
    prompt: Prompt


class _Report(msgspec.Struct):
    """The part of an exported JSON report that is read."""

    comparisons: list[_Compared]
    skipped: list[_Compared] = []


def bundled_file() -> Path:
    return system.resource("compare", "prompts.jsonl")


def bundled() -> list[Prompt]:
    """Three prompts for each of seven kinds of text."""
    return read(bundled_file())


def read(path: Path) -> list[Prompt]:
    """The prompts in a file: one object per line in ``.jsonl``, a report in ``.json``, otherwise one prompt per line.

    An object is ``{"kind": …, "prompt": "…"}`` or ``{"kind": …, "messages": [{"role": …, "content": …}, …]}``; ``kind``
    is optional. Empty lines don't count. Raises `KnownError`, with the number of the line that can't be used.
    """
    if path.suffix.lower() == ".json":
        return _read_report(path)
    lines = _text(path).split(
        "\n"
    )  # not splitlines(): JSON may contain U+2028, and line numbers should match an editor's
    parse = _parse_json if path.suffix.lower() == ".jsonl" else _parse_text
    prompts: list[Prompt] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            prompts.append(_checked(parse(line)))
        except ValueError as error:
            raise KnownError(f"Line {number} of {path.name} can't be used: {error}.") from error
        if len(prompts) > MAX_PROMPTS:
            raise KnownError(f"{path.name} has more than {words.number(MAX_PROMPTS)} prompts. Use a part of it.")
    if not prompts:
        raise KnownError(f"{path.name} has no prompts. Write one per line.")
    return prompts


def sha256(path: Path) -> str:
    """The hash that identifies a prompt set in reports. Raises `KnownError`."""
    return hashlib.sha256(_bytes(path)).hexdigest()


def _read_report(path: Path) -> list[Prompt]:
    """Each prompt of a report once, in order."""
    try:
        found = system.decode(_bytes(path), _Report)
        prompts = []
        for entry in [*found.comparisons, *found.skipped]:
            if entry.prompt not in prompts:
                prompts.append(_checked(entry.prompt))
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise KnownError(f"{path.name} is not a comparison report: {error}.") from error
    if not 0 < len(prompts) <= MAX_PROMPTS:
        raise KnownError(
            f"{path.name} has {words.number(len(prompts))} prompts; between 1 and {words.number(MAX_PROMPTS)} can be "
            "used."
        )
    return prompts


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise KnownError(f"The prompts in {path.name} can't be read: the file is not UTF-8 text.") from error


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise KnownError(f"The prompts in {path.name} can't be read ({error.strerror or error}).") from error
    if len(data) > MAX_FILE_BYTES:
        raise KnownError(
            f"{path.name} is larger than {MAX_FILE_BYTES // 2**20} MiB, which is too large for a prompt set."
        )
    return data


def _parse_text(line: str) -> Prompt:
    return Prompt(kind=OWN, messages=[Message(role="user", content=line.strip())])


def _parse_json(line: str) -> Prompt:
    try:
        found = system.decode(line.encode("utf-8", "surrogatepass"), _Line)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if (found.prompt is None) == (not found.messages):
        raise ValueError("it needs a prompt or messages")
    messages = found.messages or [Message(role="user", content=found.prompt or "")]
    return Prompt(kind=found.kind, messages=messages)


def _checked(prompt: Prompt) -> Prompt:
    """Raises `ValueError` for prompts that no engine should get."""
    if not prompt.kind.strip() or len(prompt.kind) > _MAX_KIND_CHARACTERS or not prompt.kind.isprintable():
        raise ValueError(f"a kind must be 1 to {_MAX_KIND_CHARACTERS} printable characters")
    if any(message.role == "system" for message in prompt.messages[1:]):
        raise ValueError("only the first message can be a system message")
    if not prompt.messages or prompt.messages[-1].role != "user":
        raise ValueError("the last message must be the user's")
    if not prompt.messages[-1].content.strip():
        raise ValueError("the prompt is empty")
    if sum(len(message.content) for message in prompt.messages) > MAX_PROMPT_CHARACTERS:
        raise ValueError(f"it is longer than {words.number(MAX_PROMPT_CHARACTERS)} characters")
    return prompt
