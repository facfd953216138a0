"""The options for answers that have to follow a schema or a grammar."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.protocol.options import MAX_GRAMMAR_CHARACTERS, AnswerFormat, FormatKind
from app.system import KnownError

_KINDS: dict[str, FormatKind] = {".lark": "lark", ".gbnf": "gbnf"}


def add_format_options(parser: argparse.ArgumentParser) -> None:
    """At most one of them can be given."""
    formats = parser.add_argument_group("format of the answer (default: free text)").add_mutually_exclusive_group()
    formats.add_argument("--json-object", action="store_true", help="any JSON object")
    formats.add_argument("--json-schema", type=Path, metavar="FILE", help="JSON that is valid by this schema")
    formats.add_argument("--regex", metavar="PATTERN", help="text that this regular expression matches as a whole")
    formats.add_argument(
        "--grammar", type=Path, metavar="FILE", help="text by this grammar: a .lark file, or llama.cpp's .gbnf"
    )


def answer_format(options: argparse.Namespace) -> AnswerFormat | None:
    """What the options ask for; ``None`` for free text. Raises `KnownError`."""
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
        raise KnownError(f"{name} is no grammar that Slipstream knows: its name must end in .lark or .gbnf.")
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
        raise KnownError(f"{path.name} is no text in UTF-8.") from error


def _checked(source: str, name: str) -> str:
    if len(source) > MAX_GRAMMAR_CHARACTERS:
        raise KnownError(f"{name} is longer than {MAX_GRAMMAR_CHARACTERS:,} characters. Use a shorter one.")
    return source
