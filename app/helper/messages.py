"""Requests to the helper process and its answers, each one JSON object in a frame."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec

from app import system
from app.chats.formats.records import Batch
from app.protocol.images import ImageKind

A = TypeVar("A")
ROLES = ("comment", "keyword", "string", "number", "name")
"""The roles of parts of code; `Highlighted` contains their indexes."""


class Message(msgspec.Struct, frozen=True):
    """One message of a chat."""

    role: str
    content: str
    thinking: str = ""
    """What the model thought before this answer."""
    tool_calls: list[dict[str, Any]] = []
    """As templates expect them."""
    tool_call_id: str = ""
    name: str = ""
    """The function whose result this is."""


class Request(msgspec.Struct, Generic[A], frozen=True):
    """A request that is answered by an ``A``."""

    def answers(self) -> system.Decoder[A]:
        """What reads the answer."""
        return system.decoder(get_args(vars(type(self))["__orig_bases__"][0])[0])


class TemplateChecked(msgspec.Struct, frozen=True, tag=True):
    """``variables``: the names that a request to render it may set. ``broken``: why it isn't valid, in one line."""

    variables: list[str]
    broken: str = ""


class Rendered(msgspec.Struct, frozen=True, tag=True):
    """The prompt, up to where the answer begins."""

    text: str


class TemplateFailed(msgspec.Struct, frozen=True, tag=True):
    """Why there is no prompt: the template isn't valid, raised an error, wrote more than the limit, or left out text of
    the last message or of the system prompt, or a tool. ``detail``: the error, shortened to one line.
    """

    reason: Literal["broken", "failed", "endless", "loses"]
    detail: str


class CheckTemplate(Request[TemplateChecked | TemplateFailed], frozen=True, tag=True):
    """Compile a chat template."""

    source: str


class RenderTemplate(Request[Rendered | TemplateFailed], frozen=True, tag=True):
    """Render a chat. ``now``: the local time that the template sees, in ISO format; ``variables``: by their names in
    `TemplateChecked`."""

    source: str
    bos: str
    eos: str
    messages: list[Message]
    now: str
    variables: dict[str, bool | int | float | str] = {}
    tools: list[dict[str, Any]] = []
    """As templates expect them."""


class GrammarChecked(msgspec.Struct, frozen=True, tag=True):
    """``grammar``: the same in llguidance's notation. ``notes``: the parts of a schema that it can't force, each a
    keyword and its place; ``schema``: the rest, in other words where llguidance needs that."""

    grammar: str
    notes: list[str] = []
    schema: dict[str, Any] = {}


class GrammarFailed(msgspec.Struct, frozen=True, tag=True):
    """``detail``: what is wrong and where, in one line."""

    detail: str


class CheckGrammar(Request[GrammarChecked | GrammarFailed], frozen=True, tag=True):
    """Check what an answer has to follow (`app.protocol.options.AnswerFormat`). ``lenient``: take every schema, and
    leave out what isn't valid in it."""

    kind: Literal["json_object", "json_schema", "regex", "lark", "gbnf"]
    source: str
    lenient: bool = False


class AnswerChecked(msgspec.Struct, frozen=True, tag=True):
    """``problem``: why it isn't valid, in one line; empty: it is; ``None``: that can't be found out."""

    problem: str | None


class CheckAnswer(Request[AnswerChecked], frozen=True, tag=True):
    """Check a finished answer against its JSON ``schema``."""

    schema: str
    text: str


class Highlighted(msgspec.Struct, frozen=True, tag=True):
    """For each line of the code its colored parts: start, length (UTF-16 units, as Qt counts) and index in `ROLES`,
    one after the other."""

    lines: list[list[int]]


class Highlight(Request[Highlighted], frozen=True, tag=True):
    """Find the parts of code to color."""

    language: str
    text: str


class ChatsRead(msgspec.Struct, frozen=True, tag=True):
    """The next batch."""

    batch: Batch


class ChatsNotRead(msgspec.Struct, frozen=True, tag=True):
    """A file can't be read; ``reason`` is what the system says, ``name`` the file's name, or empty."""

    reason: str
    name: str = ""


class ReadChats(Request[ChatsRead | ChatsNotRead], frozen=True, tag=True):
    """Read the chats of files and folders."""

    paths: list[str]


class ReadMoreChats(Request[ChatsRead | ChatsNotRead], frozen=True, tag=True):
    """Go on with that."""


class MarkdownRendered(msgspec.Struct, frozen=True, tag=True):
    """HTML without scripts, and with nothing that is loaded from anywhere."""

    html: list[str]


class RenderMarkdown(Request[MarkdownRendered], frozen=True, tag=True):
    """Turn texts into HTML."""

    texts: list[str]


class FormulaPart(msgspec.Struct, frozen=True, array_like=True):
    """An outline to be filled, or a line ``stroke`` wide. ``color``: empty for that of the text; ``commands``: those of
    SVG's M, L, Q, C and Z; ``numbers``: their absolute coordinates, the y axis pointing down, 0 on the baseline.
    All in thousandths of the font size."""

    color: str
    stroke: int
    commands: str
    numbers: list[int]


class FormulaDrawn(msgspec.Struct, frozen=True, tag=True):
    """A formula; ``ascent`` and ``descent`` are its height above and below the baseline, in the same units."""

    width: int
    ascent: int
    descent: int
    parts: list[FormulaPart]


class FormulaNotDrawn(msgspec.Struct, frozen=True, tag=True):
    """It isn't valid, has a command that isn't known, or is too large or nested too deeply."""


class RenderFormula(Request[FormulaDrawn | FormulaNotDrawn], frozen=True, tag=True):
    """Draw a formula. ``is_display``: as one on a line of its own."""

    tex: str
    is_display: bool


FileReason = Literal[
    "unreadable",
    "folder",
    "special",
    "empty",
    "too_large",
    "too_long",
    "too_much",
    "too_many_pages",
    "image",
    "binary",
    "old_office",
    "encrypted",
    "protected",
    "no_text",
    "damaged",
]
"""Why a file isn't read; `app.chats.transfer` has the sentences."""


Form = Literal["", "text", "source"]
"""Of a web page: what one reads of it, or what is written in it; empty: what is likelier to be wanted."""


class FileRead(msgspec.Struct, frozen=True, tag=True):
    """What a model reads of it. ``left_out`` and ``encoding``: see `app.helper.files.found.FileText`."""

    text: str
    media_type: str
    left_out: list[str] = []
    encoding: str = ""


class FileNotRead(msgspec.Struct, frozen=True, tag=True):
    """``detail``: what the system says, or a number that belongs to the reason."""

    reason: FileReason
    detail: str = ""


class ReadFile(Request[FileRead | FileNotRead], frozen=True, tag=True):
    """Read a file as text. ``encoding``: the one to use; empty: it is found out."""

    path: str
    encoding: str = ""
    form: Form = ""


class ImageLookedAt(msgspec.Struct, frozen=True, tag=True):
    """What its head says; sizes in pixels."""

    kind: ImageKind
    width: int
    height: int


class LookAtImage(Request[ImageLookedAt | FileNotRead], frozen=True, tag=True):
    """What image a file has."""

    path: str


class PageDrawn(msgspec.Struct, frozen=True, tag=True):
    """A page as PNG, its size in pixels, and how many ``pages`` the file has."""

    png: bytes
    width: int
    height: int
    pages: int


class DrawPage(Request[PageDrawn | FileNotRead], frozen=True, tag=True):
    """Draw a page of a PDF file; ``page``: from 0, the last one if there aren't so many."""

    path: str
    page: int


GrammarAnswer = GrammarChecked | GrammarFailed
FormulaAnswer = FormulaDrawn | FormulaNotDrawn
REQUESTS: system.Decoder[Request[Any]] = system.decoder(
    CheckTemplate
    | RenderTemplate
    | CheckGrammar
    | CheckAnswer
    | Highlight
    | ReadChats
    | ReadMoreChats
    | ReadFile
    | LookAtImage
    | DrawPage
    | RenderMarkdown
    | RenderFormula
)


# The encodings that a text file can be read in, by the names that people know them by.

_ENCODINGS: tuple[tuple[str, str, str], ...] = (
    ("UTF-8", "utf-8", "all languages"),
    ("Windows-1252", "cp1252", "Western European"),
    ("Windows-1250", "cp1250", "Central European"),
    ("Windows-1251", "cp1251", "Cyrillic"),
    ("Windows-1253", "cp1253", "Greek"),
    ("Windows-1254", "cp1254", "Turkish"),
    ("Windows-1255", "cp1255", "Hebrew"),
    ("Windows-1256", "cp1256", "Arabic"),
    ("Windows-1257", "cp1257", "Baltic"),
    ("Windows-874", "cp874", "Thai"),
    ("GB 18030", "gb18030", "simplified Chinese"),
    ("Big5", "cp950", "traditional Chinese"),
    ("Big5 (Hong Kong)", "big5hkscs", ""),
    ("Shift JIS", "cp932", "Japanese"),
    ("EUC-JP", "euc_jp", "Japanese"),
    ("EUC-KR", "cp949", "Korean"),
    ("KOI8-U", "koi8_u", "Cyrillic"),
    ("ISO 8859-2", "iso8859_2", ""),
    ("ISO 8859-5", "iso8859_5", ""),
    ("ISO 8859-7", "iso8859_7", ""),
    ("Mac Roman", "mac_roman", "Western European"),
    ("Mac Cyrillic", "mac_cyrillic", ""),
    ("DOS 437", "cp437", ""),
    ("DOS 850", "cp850", "Western European"),
    ("DOS 852", "cp852", ""),
    ("DOS 866", "cp866", "Cyrillic"),
    ("UTF-16 LE", "utf_16_le", "all languages"),
    ("UTF-16 BE", "utf_16_be", ""),
)
"""Name, Python's codec, and what is written in it, where a menu offers it."""
CODECS: dict[str, str] = {name: codec for name, codec, _ in _ENCODINGS}
LANGUAGES: dict[str, str] = {name: languages for name, _, languages in _ENCODINGS if languages}
"""What is written in those that a menu offers."""
