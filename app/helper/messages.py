"""Requests to the helper process and its answers, each one JSON object in a frame."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from app import decoders
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
"""Why a file isn't read; `app.chats.reading_files` has the sentences."""


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

REQUESTS: decoders.Decoder[Request] = decoders.decoder(Request)
CHECKED: decoders.Decoder[TemplateChecked | TemplateFailed] = decoders.decoder(TemplateChecked | TemplateFailed)
RENDERED: decoders.Decoder[Rendered | TemplateFailed] = decoders.decoder(Rendered | TemplateFailed)
GRAMMAR_CHECKED: decoders.Decoder[GrammarAnswer] = decoders.decoder(GrammarAnswer)
ANSWER_CHECKED: decoders.Decoder[AnswerChecked] = decoders.decoder(AnswerChecked)
CHATS_READ: decoders.Decoder[ChatsRead | ChatsNotRead] = decoders.decoder(ChatsRead | ChatsNotRead)
FILE_READ: decoders.Decoder[FileRead | FileNotRead] = decoders.decoder(FileRead | FileNotRead)
IMAGE_LOOKED_AT: decoders.Decoder[ImageLookedAt | FileNotRead] = decoders.decoder(ImageLookedAt | FileNotRead)
MARKDOWN_RENDERED: decoders.Decoder[MarkdownRendered] = decoders.decoder(MarkdownRendered)
HIGHLIGHTED: decoders.Decoder[Highlighted] = decoders.decoder(Highlighted)
"""Use it with `app.protocol.frames.decode`."""
FORMULA: decoders.Decoder[FormulaAnswer] = decoders.decoder(FormulaAnswer)
PAGE_DRAWN: decoders.Decoder[PageDrawn | FileNotRead] = decoders.decoder(PageDrawn | FileNotRead)
