"""The grammar of an answer that may have calls of tools: text, or a call as the chat template writes it, with arguments
by its schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Protocol

from app.engine.decoding.grammar import is_mark
from app.errors import KnownError
from app.protocol.tools import ARGUMENTS, ID, ID_LENGTH, NAME, Tool, ToolFormat, ToolUse

_PLACES = re.compile(f"([{NAME}{ID}{ARGUMENTS}])")
_SIGNS = re.compile(r"([\[\]{}().*+?|^$/\\])")
"""What means something in a regular expression."""


class Vocabulary(Protocol):
    """What is needed of `app.engine.llama.model.Model`."""

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]: ...
    def piece(self, token: int) -> bytes: ...
    def mark(self, token: int) -> str: ...


class CallGrammar:
    """The grammar of an answer with calls by ``use``, written in a format, for one vocabulary."""

    def __init__(self, known: ToolFormat, use: ToolUse, vocabulary: Vocabulary | None = None) -> None:
        """Without a ``vocabulary``, marks are spelled, as for a check of everything else."""
        self._format = known
        self._use = use
        self._vocabulary = vocabulary
        self.marks: dict[int, bytes] = {}
        """The text of control tokens in it."""

    def source(self) -> str:
        """In llguidance's notation."""
        known, use = self._format, self._use
        tools = [tool for tool in use.tools if use.only in ("", tool.name)]
        is_token = [type(part) for part in self._parts(known.mark)] == [int]
        more = [self._literal(known.separator), "call"]
        repeated = f" ({' '.join(filter(None, more))})*" if use.several and known.several else ""
        rules = [f"call{place}: {self._call(tool, place)}" for place, tool in enumerate(tools)]
        rules.append("call: " + " | ".join(f"call{place}" for place in range(len(tools))))
        # The first call has its mark apart, because text in front of one that is spelled ends with it.
        behind = self._literal(known.opening + known.call.partition(NAME)[0], without=known.mark)
        rules += [f"first{place}: {self._call(tool, place, begins=behind)}" for place, tool in enumerate(tools)]
        rules.append("first: " + " | ".join(f"first{place}" for place in range(len(tools))))
        closing = self._literal(known.closing)
        rules.append(f"calls: first{repeated} {closing}".rstrip())
        rules.append(f"mark: {self._literal(known.mark)}")
        rules += [f"arguments{place}: %json {_schema(tool)}" for place, tool in enumerate(tools)]
        return "\n".join([f"start: {self._start(is_token=is_token)}", *rules, *self._texts(is_token=is_token)])

    def _start(self, *, is_token: bool) -> str:
        calls = "mark calls"
        if self._use.required:
            return calls
        if not self._format.anywhere:
            return f"TEXT | {calls}"
        return f"TEXT? ({calls})?" if is_token else "TEXT | before calls"

    def _texts(self, *, is_token: bool) -> Iterator[str]:
        """The rules of text without a call."""
        if self._use.required:
            return
        mark = _SIGNS.sub(r"\\\1", self._format.mark)
        if not self._format.anywhere:
            yield rf"TEXT: /\s*([^{mark}\s](?s:.*))?/"
            return
        yield f"TEXT: /(?s:.{'+' if is_token else '*'})/ & ~/(?s:.*){mark}(?s:.*)/"
        if not is_token:
            yield f"before[lazy]: /(?s:.*){mark}/"

    def _call(self, tool: Tool, place: int, begins: str | None = None) -> str:
        """One call; ``begins``: what stands in front of the name."""
        places = {
            NAME: json.dumps(tool.name),
            ID: f"/[a-zA-Z0-9]{{{ID_LENGTH}}}/",
            ARGUMENTS: f"arguments{place}",
        }
        written = [places.get(part) or self._literal(part) for part in _PLACES.split(self._format.call)]
        if begins is not None:
            written[0] = begins
        return " ".join(filter(None, written))

    def _literal(self, text: str, *, without: str = "") -> str:
        """``text`` as a part of a rule; ``without`` its beginning."""
        parts = list(self._parts(text))
        if without and isinstance(parts[0], int):
            parts = parts[1:]
        elif without:
            assert isinstance(parts[0], str)
            parts[0] = parts[0].removeprefix(without)
        shown = (f"<[{part}]>" if isinstance(part, int) else json.dumps(part, ensure_ascii=False) for part in parts)
        return " ".join(one for one in shown if one != '""')

    def _parts(self, text: str) -> Iterator[str | int]:
        """``text`` with the numbers of tokens in the place of marks that are tokens of their own."""
        rest = text
        tokens = self._vocabulary.tokenize(text, special=True, bos=False) if self._vocabulary else []
        for token in tokens:
            assert self._vocabulary is not None
            name = self._vocabulary.mark(token)
            if not name or name not in rest or not is_mark(name, self._vocabulary.piece(token)):
                continue
            before, _, rest = rest.partition(name)
            if before:
                yield before
            self.marks[token] = name.encode()
            yield token
        if rest:
            yield rest


def _schema(tool: Tool) -> str:
    """What the arguments of ``tool`` have to follow. Raises `KnownError`."""
    from app.helper.grammars import JSON_OPTIONS  # imports llguidance

    schema = {"type": "object", **(tool.parameters or {"properties": {}, "additionalProperties": False})}
    if schema["type"] != "object":
        raise KnownError(f"The parameters of the tool {tool.name} have to be an object.")
    return json.dumps({"x-guidance": JSON_OPTIONS, **schema})
