"""What an answer's text is at the moment: prose, code or a list, read off its Markdown as it comes.

| kind | which text |
|---|---|
| code | between fences of ``` or ~~~; lines indented by four where Markdown shows them as code; JSON without a fence |
| list | lines that begin with a bullet or a number, and what goes on with them |
| prose | all else: paragraphs, headings, tables, quotes |

The beginning of a line decides, and nothing is kept but the beginning of a line that is still open: what a token costs
does not grow with the answer.
"""

from __future__ import annotations

import re

from app.protocol.options import TextKind

_FENCE = re.compile(r"(?P<run>`{3,})[^`]*$|(?P<tildes>~{3,})")
_ITEM = re.compile(r"(?:[-*+•]|\d{1,9}[.)])\s")
_JSON = re.compile(r'[{\[]\s*["{\[}\]\n]')
_OPEN = re.compile(r"(?:`{1,2}|~{1,2}|[-*+•]|\d{1,9}[.)]?|[{\[][ \t]*)$")
"""What may still turn out to be a fence, a list item or JSON."""
_IN_JSON = re.compile(r'[{}\[\]"\d-]')
_LONGEST_BEGINNING = 160
"""A line is decided after this many characters, whatever follows."""
_CODE_INDENT = 4
_ITEM_INDENT = 2
"""The kind of a paragraph that continues as a list after a blank line."""


class TextKinds:
    """Follows one answer.

    While the beginning of a line is ambiguous (``1`` may become ``1. Apples`` or ``1 apple``), `kind` stays the same.
    """

    def __init__(self) -> None:
        self.kind: TextKind = "prose"
        """The kind of the text that comes next."""
        self._line: str | None = ""
        """The beginning of the line; ``None`` once its kind is decided."""
        self._fence = ""
        """What opened the code block; empty outside a code block."""
        self._is_json = False
        self._is_indented = False
        self._is_list = False
        self._after_blank = True

    def add(self, text: str) -> None:
        """The answer continues with ``text``."""
        while text:
            line, newline, text = text.partition("\n")
            if self._line is not None:
                self._line += line
                self._read(self._line, ended=bool(newline) or len(self._line) > _LONGEST_BEGINNING)
            if newline:
                self._line = ""

    def _read(self, line: str, *, ended: bool) -> None:
        """Decide what the line is, if that can be told."""
        body = line.lstrip()
        if not body:
            if ended:
                self._read_blank()
        elif self._fence:
            self._read_code(body.rstrip(), ended)
        elif body[0].isalpha() or not (self._read_fence(body, ended) or (not ended and _OPEN.match(body))):
            self._read_text(body + "\n" if ended else body, len(line[: -len(body)].expandtabs(4)))

    def _read_blank(self) -> None:
        self._line, self._after_blank = None, True
        if self._is_json:
            self._is_json = False
            self.kind = "prose"

    def _read_code(self, body: str, ended: bool) -> None:
        """A line between fences: the last one if it is a fence of the same character, at least as long."""
        if body.strip(self._fence[0]):
            self._line = None
        elif ended and len(body) >= len(self._fence):
            self._fence, self._line, self._after_blank = "", None, False
            self.kind = "list" if self._is_list else "prose"

    def _read_fence(self, body: str, ended: bool) -> bool:
        """Whether the line opens a code block, as far as it is known: a backtick may still make it prose."""
        fence = _FENCE.match(body)
        if not fence:
            return False
        self.kind, self._is_json, self._is_indented = "code", False, False
        if ended:
            self._fence, self._line = fence["run"] or fence["tildes"], None
        return True

    def _read_text(self, body: str, indent: int) -> None:
        """A line that is not a fence, not blank and not within a code block."""
        after_blank, self._after_blank, self._line = self._after_blank, False, None
        self._is_json = self._is_json and bool(indent or _IN_JSON.match(body))
        is_code = indent >= _CODE_INDENT and not self._is_list and (after_blank or self._is_indented)
        self._is_indented = is_code and not self._is_json
        if not is_code and not self._is_json:
            goes_on = not after_blank or indent >= _ITEM_INDENT
            self._is_list = bool(_ITEM.match(body)) or (self._is_list and goes_on and body[0] != "#")
            self._is_json = after_blank and not indent and bool(_JSON.match(body))
        if is_code or self._is_json:
            self.kind = "code"
        else:
            self.kind = "list" if self._is_list else "prose"
