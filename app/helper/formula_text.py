r"""Rewrites TeX that latex2mathml would get wrong: words (``\text``), lines of arrays, fonts.

Lines become characters that no formula has, in the cells where they belong; `app.helper.formula_tables` draws them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

ROW_LINE = "\ue000"
COLUMN_LINES = range(0xE010, 0xE060)
"""Each says before which column a line is."""
STAND_INS = {"&": "\ue001", "{": "\ue002", "}": "\ue003", "<": "\ue004", ">": "\ue005"}
"""For what can't stand in a text for latex2mathml."""
_LETTER = r"[^{}\\]|\\."
GROUP = rf"\{{((?:{_LETTER}|\{{(?:{_LETTER}|\{{(?:{_LETTER})*\}})*\}})*)\}}"
"""What stands in braces, with braces in it down to the third level."""

_WORDS = re.compile(rf"\\(text(?:bf|it|md|normal|rm|sf|tt|up)?|[mh]box|emph)(?![A-Za-z])\s*{GROUP}")
_PIECE = re.compile(
    r"(?P<escaped>\\[%#&_$ {}<>])|\$(?P<math>(?:[^$\\]|\\.)+)\$|\\\((?P<other>.+?)\\\)"
    rf"|(?P<words>{_WORDS.pattern})|(?P<sign>\\(?:ldots|dots|quad)(?![A-Za-z])\s*|\\[,;]|---?|``|''|[~&<>])|(?P<plain>[^\\{{}}$])"
    r"|(?P<brace>[{}])",
    re.DOTALL,
)
_SIGNS = {r"\ldots": "…", r"\dots": "…", r"\quad": "\u2003", "--": "–", "---": "—", "``": "“", "''": "”", "~": "\xa0"}
_FONT = re.compile(r"\\math(bb|cal|frak|scr|bf|sf|tt|it)(?:\s+([A-Za-z0-9])|([0-9]))|\\math(?:bbm|ds)(?![A-Za-z])")
_WORD_IN_FONT = re.compile(r"\\math(bb|cal|frak|scr|bf|sf|tt)\s*\{([^{}\\^_&]{2,})\}")
_LETTER_OR_DIGIT = re.compile(r"[A-Za-z0-9]")
_DOUBLE_STRUCK = re.compile(r"\\mathbb\s*\{([0-9])\}")
_OPERATOR = re.compile(rf"\\operatorname(\*?)\s*{GROUP}")
_SPACE = re.compile(r"\\[,;: ]|~")
_TABLE = re.compile(
    rf"\\begin\{{array\}}\s*(?:\[[tbc]\]\s*)?{GROUP}|\\begin\{{([pbBvV]?matrix)\}}\s*\[([lcr|\s]*\|[lcr|\s]*)\]"
)
_REPEATED = re.compile(rf"\*\s*(?:\{{(\d{{1,2}})\}}|(\d)){GROUP}")
_SPACING = re.compile(rf"[@!<>]\s*{GROUP}")
_PARAGRAPH = re.compile(rf"[pmb]\s*{GROUP}")


def mended(tex: str) -> str:
    """The same formula for latex2mathml. Raises `ValueError` for what nothing here can express."""
    tex = _FONT.sub(lambda font: rf"\math{font[1]}{{{font[2] or font[3]}}}" if font[1] else r"\mathbb", tex)
    tex = _WORD_IN_FONT.sub(lambda word: "{" + _LETTER_OR_DIGIT.sub(rf"\\math{word[1]}{{\g<0>}}", word[2]) + "}", tex)
    tex = _DOUBLE_STRUCK.sub(lambda digit: chr(0x1D7D8 + int(digit[1])), tex)
    tex = _OPERATOR.sub(lambda name: rf"\operatorname{name[1]}{{{_SPACE.sub(chr(0x2009), name[2])}}}", tex)
    tex = re.sub(r"\\bmod(?![A-Za-z])", r"\\;\\mathrm{mod}\\;", tex)
    tex = _WORDS.sub(lambda words: _words(words[1], words[2]), tex)
    return _TABLE.sub(_table, tex).replace(r"\hline", ROW_LINE)


def _words(command: str, content: str) -> str:
    pieces = list(_pieces(command, content))
    return pieces[0] if len(pieces) == 1 else f"{{{''.join(pieces)}}}"


def _pieces(command: str, content: str) -> Iterator[str]:
    font = {"emph": "textit", "mbox": "text", "hbox": "text"}.get(command, command)
    text, at = "", 0
    while at < len(content):
        piece = _PIECE.match(content, at)
        if piece is None:
            raise ValueError
        at = piece.end()
        formula = piece["math"] or piece["other"] or piece["words"]
        if formula is None:
            text += _plain(piece)
            continue
        if text:
            yield rf"\{font}{{{text}}}"
        text = ""
        yield f"{{{mended(formula)}}}"
    if text:
        yield rf"\{font}{{{text}}}"


def _plain(piece: re.Match[str]) -> str:
    if piece["escaped"]:
        letter = piece["escaped"][1]
        return STAND_INS.get(letter, "\xa0" if letter == " " else letter)
    if piece["sign"]:
        sign = piece["sign"].strip()
        return STAND_INS.get(sign) or _SIGNS.get(sign, "\u2009")
    return piece["plain"] or ""


def _table(begin: re.Match[str]) -> str:
    columns = _REPEATED.sub(lambda found: found[3] * int(found[1] or found[2]), begin[1] or begin[3] or "")
    columns = _PARAGRAPH.sub("l", _SPACING.sub("", columns))
    columns = "".join(columns.split())
    if not re.fullmatch(r"[lcr|]*", columns) or columns.count("|") > len(COLUMN_LINES) // 2:
        raise ValueError
    lines, before = "", 0
    for letter in columns:
        if letter == "|":
            lines += chr(COLUMN_LINES[min(before, len(COLUMN_LINES) - 1)])
        else:
            before += 1
    start = rf"\begin{{{begin[2]}}}" if begin[2] else rf"\begin{{array}}{{{columns.replace('|', '') or 'c'}}}"
    return f"{start}{lines} "
