"""Requests to the helper process and its answers, each one JSON object in a frame."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from app import system
from app.chats.formats.records import Batch
from app.protocol.images import ImageKind

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


class CheckTemplate(msgspec.Struct, frozen=True, tag=True):
    """Compile a chat template. Answered by `TemplateChecked`."""

    source: str


class RenderTemplate(msgspec.Struct, frozen=True, tag=True):
    """Render a chat. ``now``: the local time that the template sees, in ISO format; ``variables``: by their names in
    `TemplateChecked`. Answered by `Rendered` or `TemplateFailed`."""

    source: str
    bos: str
    eos: str
    messages: list[Message]
    now: str
    variables: dict[str, bool | int | float | str] = {}
    tools: list[dict[str, Any]] = []
    """As templates expect them."""


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


class CheckGrammar(msgspec.Struct, frozen=True, tag=True):
    """Check what an answer has to follow (`app.protocol.options.AnswerFormat`). ``lenient``: take every schema, and
    leave out what isn't valid in it. Answered by `GrammarChecked` or `GrammarFailed`."""

    kind: Literal["json_object", "json_schema", "regex", "lark", "gbnf"]
    source: str
    lenient: bool = False


class GrammarChecked(msgspec.Struct, frozen=True, tag=True):
    """``grammar``: the same in llguidance's notation. ``notes``: the parts of a schema that it can't force, each a
    keyword and its place; ``schema``: the rest, in other words where llguidance needs that."""

    grammar: str
    notes: list[str] = []
    schema: dict[str, Any] = {}


class GrammarFailed(msgspec.Struct, frozen=True, tag=True):
    """``detail``: what is wrong and where, in one line."""

    detail: str


class CheckAnswer(msgspec.Struct, frozen=True, tag=True):
    """Check a finished answer against its JSON ``schema``. Answered by `AnswerChecked`."""

    schema: str
    text: str


class AnswerChecked(msgspec.Struct, frozen=True, tag=True):
    """``problem``: why it isn't valid, in one line; empty: it is; ``None``: that can't be found out."""

    problem: str | None


class Highlight(msgspec.Struct, frozen=True, tag=True):
    """Find the parts of code to color."""

    language: str
    text: str


class Highlighted(msgspec.Struct, frozen=True, tag=True):
    """For each line of the code its colored parts: start, length (UTF-16 units, as Qt counts) and index in `ROLES`,
    one after the other."""

    lines: list[list[int]]


class ReadChats(msgspec.Struct, frozen=True, tag=True):
    """Read the chats of files and folders. Answered by `ChatsRead` with the first batch, or `ChatsNotRead`."""

    paths: list[str]


class ReadMoreChats(msgspec.Struct, frozen=True, tag=True):
    """Go on with that. Answered by `ChatsRead`, or `ChatsNotRead`."""


class ChatsRead(msgspec.Struct, frozen=True, tag=True):
    """The next batch."""

    batch: Batch


class ChatsNotRead(msgspec.Struct, frozen=True, tag=True):
    """A file can't be read; ``reason`` is what the system says, ``name`` the file's name, or empty."""

    reason: str
    name: str = ""


class RenderMarkdown(msgspec.Struct, frozen=True, tag=True):
    """Turn texts into HTML. Answered by `MarkdownRendered`."""

    texts: list[str]


class MarkdownRendered(msgspec.Struct, frozen=True, tag=True):
    """HTML without scripts, and with nothing that is loaded from anywhere."""

    html: list[str]


class RenderFormula(msgspec.Struct, frozen=True, tag=True):
    """Draw a formula. ``is_display``: as one on a line of its own. Answered by `FormulaDrawn` or `FormulaNotDrawn`."""

    tex: str
    is_display: bool


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


class ReadFile(msgspec.Struct, frozen=True, tag=True):
    """Read a file as text. ``encoding``: the one to use; empty: it is found out. Answered by `FileRead` or
    `FileNotRead`."""

    path: str
    encoding: str = ""
    form: Form = ""


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


class LookAtImage(msgspec.Struct, frozen=True, tag=True):
    """What image a file has. Answered by `ImageLookedAt` or `FileNotRead`."""

    path: str


class ImageLookedAt(msgspec.Struct, frozen=True, tag=True):
    """What its head says; sizes in pixels."""

    kind: ImageKind
    width: int
    height: int


class DrawPage(msgspec.Struct, frozen=True, tag=True):
    """Draw a page of a PDF file; ``page``: from 0, the last one if there aren't so many. Answered by `PageDrawn` or
    `FileNotRead`."""

    path: str
    page: int


class PageDrawn(msgspec.Struct, frozen=True, tag=True):
    """A page as PNG, its size in pixels, and how many ``pages`` the file has."""

    png: bytes
    width: int
    height: int
    pages: int


TemplateRequest = CheckTemplate | RenderTemplate
TemplateAnswer = TemplateChecked | Rendered | TemplateFailed
GrammarAnswer = GrammarChecked | GrammarFailed
Request = (
    TemplateRequest
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
FormulaAnswer = FormulaDrawn | FormulaNotDrawn
FileAnswer = FileRead | FileNotRead | ImageLookedAt | PageDrawn
Answer = (
    TemplateAnswer
    | GrammarAnswer
    | AnswerChecked
    | Highlighted
    | ChatsRead
    | ChatsNotRead
    | FileAnswer
    | MarkdownRendered
    | FormulaAnswer
)

REQUESTS: system.Decoder[Request] = system.decoder(Request)
CHECKED: system.Decoder[TemplateChecked | TemplateFailed] = system.decoder(TemplateChecked | TemplateFailed)
RENDERED: system.Decoder[Rendered | TemplateFailed] = system.decoder(Rendered | TemplateFailed)
GRAMMAR_CHECKED: system.Decoder[GrammarAnswer] = system.decoder(GrammarAnswer)
ANSWER_CHECKED: system.Decoder[AnswerChecked] = system.decoder(AnswerChecked)
CHATS_READ: system.Decoder[ChatsRead | ChatsNotRead] = system.decoder(ChatsRead | ChatsNotRead)
FILE_READ: system.Decoder[FileRead | FileNotRead] = system.decoder(FileRead | FileNotRead)
IMAGE_LOOKED_AT: system.Decoder[ImageLookedAt | FileNotRead] = system.decoder(ImageLookedAt | FileNotRead)
MARKDOWN_RENDERED: system.Decoder[MarkdownRendered] = system.decoder(MarkdownRendered)
HIGHLIGHTED: system.Decoder[Highlighted] = system.decoder(Highlighted)
"""Use it with `app.protocol.frames.decode`."""
FORMULA: system.Decoder[FormulaAnswer] = system.decoder(FormulaAnswer)
PAGE_DRAWN: system.Decoder[PageDrawn | FileNotRead] = system.decoder(PageDrawn | FileNotRead)


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
