"""Options that go with a prompt: a format for the answer, attached files, images."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from app import words
from app.chats.attachments import Content
from app.chats.formats.values import file_text
from app.chats.transfer import content_of
from app.helper import READING_SECONDS, Helper, HelperError
from app.helper.messages import ImageLookedAt, LookAtImage
from app.models.gguf import read_header
from app.models.heads import find_projector
from app.protocol.commands import Image
from app.protocol.images import HEAD_BYTES, problem_of, read_head
from app.protocol.options import MAX_GRAMMAR_CHARACTERS, AnswerFormat, FormatKind
from app.storage.files import sha256_of
from app.system import KnownError
from app.words import printable, visible

_KINDS: dict[str, FormatKind] = {".lark": "lark", ".gbnf": "gbnf"}


def add_format_options(parser: argparse.ArgumentParser) -> None:
    """Mutually exclusive options."""
    formats = parser.add_argument_group("format of the answer (default: free text)").add_mutually_exclusive_group()
    formats.add_argument("--json-object", action="store_true", help="any JSON object")
    formats.add_argument("--json-schema", type=Path, metavar="FILE", help="JSON that is valid by this schema")
    formats.add_argument("--regex", metavar="PATTERN", help="text that this regular expression matches as a whole")
    formats.add_argument(
        "--grammar", type=Path, metavar="FILE", help="text by this grammar: a .lark file, or llama.cpp's .gbnf"
    )


def answer_format(options: argparse.Namespace) -> AnswerFormat | None:
    """The format that the options ask for; ``None`` for free text. Raises `KnownError`."""
    if options.json_object:
        return AnswerFormat(kind="json_object")
    if options.regex is not None:
        return AnswerFormat(kind="regex", source=_checked(options.regex, "The regular expression"))
    if options.json_schema is not None:
        return AnswerFormat(kind="json_schema", source=_read(options.json_schema))
    if options.grammar is None:
        return None
    kind = _KINDS.get(options.grammar.suffix.lower())
    if kind is None:
        name = options.grammar.name
        raise KnownError(f"{name} isn't a grammar that Slipstream knows: its name must end in .lark or .gbnf.")
    return AnswerFormat(kind=kind, source=_read(options.grammar))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(4 * MAX_GRAMMAR_CHARACTERS + 1)
    except OSError as error:
        raise KnownError(f"{path.name} can't be read: {error.strerror or error}.") from error
    try:
        return _checked(data.decode("utf-8-sig"), path.name)
    except UnicodeDecodeError as error:
        raise KnownError(f"{path.name} isn't UTF-8 text.") from error


def _checked(source: str, name: str) -> str:
    if len(source) > MAX_GRAMMAR_CHARACTERS:
        raise KnownError(f"{name} is longer than {words.number(MAX_GRAMMAR_CHARACTERS)} characters. Use a shorter one.")
    return source


def add_attach_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--attach",
        action="append",
        default=[],
        metavar="FILE",
        help="a file to put before the prompt: text, code, PDF, web page, Office file, book, notebook; may be repeated",
    )


def with_attached(prompt: str, paths: Sequence[str]) -> str:
    """The texts of these files with the prompt below them. Raises `KnownError`."""
    if not paths:
        return prompt
    helper = Helper(READING_SECONDS)
    try:
        found = [_text_of(path, printable(Path(path).name or path), helper) for path in paths]
    finally:
        helper.stop()
    return "\n\n".join([*(file_text(one.name, one.data.decode()) for one in found), prompt])


def _text_of(path: str, name: str, helper: Helper) -> Content:
    with contextlib.suppress(HelperError):
        if isinstance(helper.ask(LookAtImage(path)), ImageLookedAt):
            raise KnownError(f"{name} is a picture. Use --image for it.")
    content = content_of(path, name, helper)
    if content.note:
        print(f"{name}: {visible(content.note)}", file=sys.stderr)
    return content


def image_at(path: Path) -> Image:
    """An image for a message. Raises `KnownError` if it can't be used."""
    try:
        with path.open("rb") as file:
            head = read_head(file.read(HEAD_BYTES))
        if problem := problem_of(head, path.name, path.stat().st_size):
            raise KnownError(problem)
        return Image(sha256=sha256_of(path, lambda: False), path=str(path.absolute()))
    except OSError as error:
        raise KnownError(f"The image {path} can't be read: {error.strerror or error}.") from error


def projector_for(options: argparse.Namespace, target: Path) -> Path | None:
    """The given projector or, if there are images, the one in the folder of ``target``.

    Raises `KnownError` if there are images but no projector.
    """
    if (named := getattr(options, "mmproj", None)) is not None:
        return Path(named).absolute()
    if not getattr(options, "image", None):
        return None
    found = find_projector(read_header(target.absolute()))
    if found is None:
        raise KnownError(f"{target.name} can't see images without its projector. Name one with --mmproj.")
    return found.path
