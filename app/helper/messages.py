"""The helper process's requests and answers, each a JSON object in a frame."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec

from app import system
from app.chats.formats.records import Batch
from app.protocol.images import ImageKind

A = TypeVar("A")
ROLES = ("comment", "keyword", "string", "number", "name")
"""The roles of parts of code; `Highlighted` has indexes into this."""


class Message(msgspec.Struct, frozen=True):
    """One message of a chat."""

    role: str
    content: str
    thinking: str = ""
    """The model's thinking before this answer."""
    tool_calls: list[dict[str, Any]] = []
    """As templates expect them."""
    tool_call_id: str = ""
    name: str = ""
    """For a tool's result: the function that was called."""


class Request(msgspec.Struct, Generic[A], frozen=True):
    """A request that is answered by an ``A``."""

    def answers(self) -> system.Decoder[A]:
        """The decoder for the answer."""
        return system.decoder(get_args(vars(type(self))["__orig_bases__"][0])[0])


class TemplateChecked(msgspec.Struct, frozen=True, tag=True):
    """``variables``: names for `RenderTemplate.variables`. ``broken``: why the template isn't valid, in one line."""

    variables: list[str]
    broken: str = ""


class Rendered(msgspec.Struct, frozen=True, tag=True):
    """The prompt, up to the beginning of the answer."""

    text: str


class TemplateFailed(msgspec.Struct, frozen=True, tag=True):
    """Why there is no prompt: the template isn't valid, raised an error, exceeded the size limit, or lost a tool or
    text of the last message or system prompt. ``detail``: the error, shortened to one line.
    """

    reason: Literal["broken", "failed", "endless", "loses"]
    detail: str


class CheckTemplate(Request[TemplateChecked | TemplateFailed], frozen=True, tag=True):
    """Compile a chat template."""

    source: str


class RenderTemplate(Request[Rendered | TemplateFailed], frozen=True, tag=True):
    """Render a chat. ``now``: the template's local time, in ISO format; ``variables``: by their names in
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
    """``grammar``: in llguidance's notation. ``notes``: the parts of a schema that can't be enforced, by keyword and
    place; ``schema``: the rest, rewritten for llguidance."""

    grammar: str
    notes: list[str] = []
    schema: dict[str, Any] = {}


class GrammarFailed(msgspec.Struct, frozen=True, tag=True):
    """``detail``: what is wrong and where, in one line."""

    detail: str


class CheckGrammar(Request[GrammarChecked | GrammarFailed], frozen=True, tag=True):
    """Check an `app.protocol.options.AnswerFormat`. ``lenient``: ignore the invalid parts of a schema."""

    kind: Literal["json_object", "json_schema", "regex", "lark", "gbnf"]
    source: str
    lenient: bool = False


class AnswerChecked(msgspec.Struct, frozen=True, tag=True):
    """``problem``: why the answer isn't valid, in one line; empty: it is; ``None``: it can't be checked."""

    problem: str | None


class CheckAnswer(Request[AnswerChecked], frozen=True, tag=True):
    """Check a finished answer against its JSON ``schema``."""

    schema: str
    text: str


class Highlighted(msgspec.Struct, frozen=True, tag=True):
    """For each line of code, a flat list of its colored parts: start, length (in UTF-16 units, like Qt), and index in
    `ROLES`."""

    lines: list[list[int]]


class Highlight(Request[Highlighted], frozen=True, tag=True):
    """Find the parts of code to color."""

    language: str
    text: str


class ChatsRead(msgspec.Struct, frozen=True, tag=True):
    """The next batch."""

    batch: Batch


class ChatsNotRead(msgspec.Struct, frozen=True, tag=True):
    """A file can't be read; ``reason`` is the system's message, ``name`` the file's name or empty."""

    reason: str
    name: str = ""


class ReadChats(Request[ChatsRead | ChatsNotRead], frozen=True, tag=True):
    """Begin to read chats from files and folders."""

    paths: list[str]


class ReadMoreChats(Request[ChatsRead | ChatsNotRead], frozen=True, tag=True):
    """Read the next batch."""


class MarkdownRendered(msgspec.Struct, frozen=True, tag=True):
    """HTML without scripts, which loads nothing from anywhere."""

    html: list[str]


class RenderMarkdown(Request[MarkdownRendered], frozen=True, tag=True):
    """Turn texts into HTML."""

    texts: list[str]


class FormulaPart(msgspec.Struct, frozen=True, array_like=True):
    """A filled outline, or a line ``stroke`` wide. ``color``: empty for the text's; ``commands``: SVG's M, L, Q, C and
    Z; ``numbers``: their absolute coordinates in thousandths of the font size, y pointing down from the baseline."""

    color: str
    stroke: int
    commands: str
    numbers: list[int]


class FormulaDrawn(msgspec.Struct, frozen=True, tag=True):
    """``ascent`` and ``descent`` are its height above and below the baseline; in thousandths of the font size."""

    width: int
    ascent: int
    descent: int
    parts: list[FormulaPart]


class FormulaNotDrawn(msgspec.Struct, frozen=True, tag=True):
    """It isn't valid, has an unknown command, is too large, or is nested too deeply."""


class RenderFormula(Request[FormulaDrawn | FormulaNotDrawn], frozen=True, tag=True):
    """Draw a formula. ``is_display``: on a line of its own."""

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
"""Of a web page: its visible text, or its source; empty: whichever is more likely to be wanted."""


class FileRead(msgspec.Struct, frozen=True, tag=True):
    """A file as text for a model; see `app.helper.files.found.FileText`."""

    text: str
    media_type: str
    left_out: list[str] = []
    encoding: str = ""


class FileNotRead(msgspec.Struct, frozen=True, tag=True):
    """``detail``: the system's message, or a number that belongs to the reason."""

    reason: FileReason
    detail: str = ""


class ReadFile(Request[FileRead | FileNotRead], frozen=True, tag=True):
    """Read a file as text. ``encoding``: empty to detect it."""

    path: str
    encoding: str = ""
    form: Form = ""


class ImageLookedAt(msgspec.Struct, frozen=True, tag=True):
    """From the file's header; sizes in pixels."""

    kind: ImageKind
    width: int
    height: int


class LookAtImage(Request[ImageLookedAt | FileNotRead], frozen=True, tag=True):
    """Identify an image file."""

    path: str


class PageDrawn(msgspec.Struct, frozen=True, tag=True):
    """A page as PNG, its size in pixels, and how many ``pages`` the file has."""

    png: bytes
    width: int
    height: int
    pages: int


class DrawPage(Request[PageDrawn | FileNotRead], frozen=True, tag=True):
    """Draw a page of a PDF file; ``page`` counts from 0 and is capped at the last one."""

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


# The encodings of text files, by the names that people know.

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
"""Name, Python's codec, and if a menu offers it, the languages it is for."""
CODECS: dict[str, str] = {name: codec for name, codec, _ in _ENCODINGS}
LANGUAGES: dict[str, str] = {name: languages for name, _, languages in _ENCODINGS if languages}
"""The languages of the encodings that a menu offers."""
