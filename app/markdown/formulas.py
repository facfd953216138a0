r"""Formulas in Markdown: which parts of a text are TeX, and rules for markdown-it-py that find them.

A formula stands in ``\(…\)``, ``\[…\]``, ``$$…$$``, ``$…$``, or in an environment such as ``\begin{align}`` on lines of
its own; never in code, in an address, or across an empty line. For ``$…$``, as in Pandoc, no space may follow the first
sign or stand before the second one. Neither sign may touch a letter or digit outside, so prices and shell variables
remain text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

MAX_CHARACTERS = 2000
"""Of TeX; what is longer is no formula."""
GROWING = "growing"
"""In the parser's environment: the text is still being written, so a formula at its end may lack its own."""
INLINE, BLOCK = "formula", "formula_block"
"""The types of the tokens; their content is the whole source, ``meta`` has the `Formula`."""

PLACES = "places"
"""Of a token with content: where parts of it begin, in the content and in the text, in its ``meta``."""

_LENGTH = f"{{1,{MAX_CHARACTERS}}}"
_LINE_BREAK = r"\n(?![ \t>]*\n)"
_ENVIRONMENTS = (
    r"(?:equation|align|aligned|alignat|gather|gathered|multline|eqnarray|split|cases|array|[pbvBV]?matrix)\*?"
)
_FORMS = {
    r"\(": re.compile(rf"\\\((?P<tex>(?:[^\\\n]|\\(?![()])[\s\S]|{_LINE_BREAK}){_LENGTH}?)\\\)"),
    r"\[": re.compile(rf"\\\[(?P<tex>(?:[^\\\n]|\\(?![\[\]])[\s\S]|{_LINE_BREAK}){_LENGTH}?)\\\]"),
    "$$": re.compile(rf"\$\$(?!\$)(?P<tex>(?:[^$\\\n]|\\[\s\S]|\$(?!\$)|{_LINE_BREAK}){_LENGTH}?)\$\$(?!\$)"),
    "$": re.compile(rf"(?<![\\$0-9A-Za-z])\$(?![\s$])(?P<tex>(?:[^$\\\n]|\\.){_LENGTH})(?<!\s)\$(?![$0-9A-Za-z])"),
    r"\b": re.compile(
        rf"(?P<tex>\\begin\{{(?P<name>{_ENVIRONMENTS})\}}(?:[^\n]|{_LINE_BREAK}){_LENGTH}?\\end\{{(?P=name)\}})"
    ),
}
_DISPLAY = (r"\[", "$$", r"\b")
_FENCE = r"^[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*+(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})"
_NEXT = re.compile(
    rf"""
    {_FENCE}[^\n]*(?:\n(?![ \t>]*(?P=fence)[`~]*[ \t]*$)[^\n]*)*(?:\n[^\n]*)?
    |(?P<ticks>`+)
    |(?P<opening>\\[(\[]|\$\$?)
    |^(?P<quote>[ \t>]*)(?P<environment>\\begin\{{{_ENVIRONMENTS}\}})
    |\\.
    |\]\((?:[^()\n]|\([^()\n]*\))*\)
    |<[A-Za-z][A-Za-z0-9+.\-]{{1,31}}:[^\s<>]*>
    |https?://[^\s<>]+
    """,
    re.VERBOSE | re.MULTILINE,
)
_WORDS = re.compile(r"[A-Za-z]{2,}[ ,;:]+[A-Za-z]{2,}| [A-Za-z]{3,} ")
_WORD = re.compile(r"[A-Za-z]{2,}")
_TEX_SIGNS = re.compile(r"[\\^_{}=]")
_ESCAPED_TEXT = re.compile(r"[\w\s.,;:'\"!?#-]*")
QUOTE_MARKS = re.compile(r"\n[ \t]*(?:>[ \t]?)+")
"""What the lines of a formula in a quote begin with."""
_AFTER = re.compile(r"[ \t]*[.,;:]?[ \t]*(?=\n|\Z)")
_OPEN = re.compile(r"(?:\\\(|\\\[|\$\$)[^\n`]*\Z")
"""One within a line that lacks its end so far."""
_UNFINISHED = re.compile(rf"(?:\\\[|\$\$(?!\$))(?=[ \t]*\n|[^\n]*[\\^_={{&+])|\\begin\{{{_ENVIRONMENTS}\}}")


@dataclass(frozen=True, slots=True)
class Formula:
    """Characters ``start`` to ``end`` of a text, and the TeX in them."""

    start: int
    end: int
    source: str
    """The whole of it, with what it stands in, but without the marks of a quote."""
    tex: str
    is_display: bool
    """Whether it stands on a line of its own."""


def formula_at(text: str, at: int) -> Formula | None:
    """The formula that begins at this place, if one does."""
    opening = text[at : at + 2]
    form = _FORMS.get(opening) or _FORMS.get(opening[:1])
    found = form.match(text, at) if form is not None else None
    if found is None:
        return None
    is_display = opening in _DISPLAY
    tex, source = found["tex"], found[0]
    if "\n" in tex and text[text.rfind("\n", 0, at) + 1 : at].lstrip().startswith(">"):
        tex, source = QUOTE_MARKS.sub("\n", tex), QUOTE_MARKS.sub("\n", source)
    is_tex = _is_tex(tex, opening, text[found.end() : found.end() + 1]) or (
        opening == r"\[" and _is_alone(text, at, found.end())
    )
    return Formula(at, found.end(), source, tex.strip(), is_display) if tex.strip() and is_tex else None


def _is_tex(tex: str, opening: str, following: str) -> bool:
    """Whether this is no ordinary text in escaped brackets or between two dollar signs."""
    if opening == r"\[":
        is_text = _ESCAPED_TEXT.fullmatch(tex) is not None or not any(map(str.isalnum, tex))
        return following not in ("(", "[") and not is_text
    if opening in _DISPLAY:
        return True
    if _TEX_SIGNS.search(tex) is None and _WORDS.search(tex):
        return False
    if opening == r"\(":
        return True
    if following in ("{", "(") and tex[0] == following:  # variables of a shell
        return False
    return "\\" in tex or not (tex[0].isdigit() and _WORD.search(tex))


def _is_alone(text: str, start: int, end: int) -> bool:
    """Whether there is nothing else on the lines of a formula."""
    before = text[text.rfind("\n", 0, start) + 1 : start]
    return not before.strip(" \t>") and _AFTER.match(text, end) is not None


def formulas_in(markdown: str) -> list[Formula]:
    """All formulas of a text of any number of blocks, in order."""
    found: list[Formula] = []
    at = 0
    if "$" not in markdown and "\\" not in markdown:
        return found
    while (part := _NEXT.search(markdown, at)) is not None:
        at = part.end()
        if part["ticks"] is not None:
            at = _end_of_code(markdown, at, part["ticks"])
            continue
        start = part.start("environment") if part["environment"] is not None else part.start("opening")
        formula = formula_at(markdown, start) if start >= 0 else None
        if formula is not None and (part["environment"] is None or _AFTER.match(markdown, formula.end)):
            found.append(formula)
            at = formula.end
        elif part["opening"] == "$$" and markdown[at : at + 1] != "$":
            at -= 1  # one of the two may begin a formula
    return found


def _end_of_code(text: str, at: int, ticks: str) -> int:
    """Where the code span that begins before ``at`` ends; ``at`` itself if it has no end."""
    end = re.compile(rf"(?<!`){ticks}(?!`)").search(text, at)
    return at if end is None or "\n\n" in text[at : end.start()] else end.end()


# ---------------------------------------------------------------- rules for markdown-it-py


def use_formulas(parser: MarkdownIt) -> MarkdownIt:
    """Let a parser find formulas; gives it back."""
    parser.block.ruler.before("fence", BLOCK, _block_rule, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.inline.ruler.before("escape", INLINE, _inline_rule)
    return parser


def _block_rule(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """A formula on lines of its own."""
    if state.is_code_block(start_line):
        return False
    start = state.bMarks[start_line] + state.tShift[start_line]
    if state.src[start : start + 1] not in ("\\", "$"):
        return False
    formula, line = formula_at(state.src, start), start_line
    if formula is not None and formula.is_display and (after := _AFTER.match(state.src, formula.end)):
        end = after.end()
    elif formula is None and state.env.get(GROWING) and _is_unfinished(state.src, start):
        end = len(state.src)
    else:
        return False
    indent = min(state.blkIndent, state.sCount[start_line])
    while line < end_line and state.eMarks[line] < end:
        line += 1
        if line < end_line and not state.isEmpty(line) and state.sCount[line] < indent:
            return False
    if line >= end_line and formula is not None:
        return False
    if not silent:
        token = state.push(BLOCK, "div", 0)
        token.map = [start_line, min(line + 1, end_line)]
        token.content = state.src[start:end]
        token.meta = {"formula": formula, PLACES: [(0, start)]}
        token.block = True
        state.line = token.map[1]
    return True


def _is_unfinished(text: str, start: int) -> bool:
    """Whether what begins here can still become a formula."""
    rest = text[start:]
    is_short = len(rest) <= MAX_CHARACTERS and re.search(r"\n[ \t>]*\n", rest) is None
    closed = r"\]" in rest or "$$" in rest[2:] or r"\end{" in rest
    return is_short and not closed and _UNFINISHED.match(text, start) is not None


def _inline_rule(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in ("\\", "$"):
        return False
    formula = formula_at(state.src, state.pos)
    if formula is None and state.env.get(GROWING) and (found := _OPEN.match(state.src, state.pos)):
        # Its signs are not escapes of Markdown; what closes other marks for now stands behind it.
        text = found[0].rstrip("*")
        formula = Formula(state.pos, state.pos + len(text), text, "", is_display=False)
    if formula is None or state.src.startswith(r"\b", state.pos):
        return False
    if not silent:
        token = state.push(INLINE, "span", 0)
        token.content = formula.source
        token.meta["formula"] = formula
    state.pos = formula.end
    return True
