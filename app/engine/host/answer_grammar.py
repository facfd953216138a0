"""The grammar that an answer of a loaded target has to follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.detokenizer import TokenTexts
from app.engine.decoding.grammar import Grammar
from app.engine.decoding.tool_grammar import CallGrammar
from app.engine.host.loading import Target
from app.errors import KnownError
from app.helper.answer_format import checked_grammar
from app.protocol.commands import Generate, ScoreTokens
from app.protocol.limits import MAX_GRAMMAR_CHARACTERS
from app.protocol.options import AnswerFormat
from app.protocol.tools import FORMATS, ToolUse


def grammar_of(target: Target, command: Generate | ScoreTokens) -> tuple[Grammar | None, Mapping[int, bytes]]:
    """What the answer has to follow, and what is shown of control tokens in it. Raises `KnownError` for a format that
    can't be used."""
    if isinstance(command, Generate) and command.tools:
        source, marks = _call_grammar(target, command.tools)
    elif command.format:
        source, marks = checked_grammar(command.format), {}
    else:
        return None, {}
    openings = frozenset[int]() if command.raw else target.thinking.marks.opening_tokens
    return Grammar(target.grammar_vocabulary, source, openings), marks


def allowed_after(target: Target, command: ScoreTokens, prompt: Sequence[int]) -> NDArray[np.bool_] | None:
    """The tokens that may follow the answer, shape (vocabulary,); ``None``: all of them. Raises `KnownError`."""
    grammar, _ = grammar_of(target, command)
    if grammar is None:
        return None
    marks = None if command.raw else target.thinking.marks
    grammar.follow(TokenTexts(target.model.piece, marks, prompt, by_grammar=True), command.answer)
    if not grammar.in_force:
        return None
    with grammar.ahead() as ahead:
        return ahead.allowed()


def _call_grammar(target: Target, use: ToolUse) -> tuple[str, Mapping[int, bytes]]:
    """The grammar of an answer with calls, in llguidance's notation, and its control tokens."""
    known = FORMATS.get(target.prompts.tokenizer.tool_format)
    if known is None:
        raise KnownError("The model's chat template writes tool calls in a form that isn't known here.")
    if len(msgspec.json.encode(use)) > MAX_GRAMMAR_CHARACTERS:
        raise KnownError(f"The tools have more than {MAX_GRAMMAR_CHARACTERS:,} characters together.")
    for tool in use.tools:
        schema = AnswerFormat(kind="json_schema", source=msgspec.json.encode(tool.parameters).decode())
        checked_grammar(schema, f"The parameters of the tool {tool.name}")
    checked = CallGrammar(known, use)
    checked_grammar(AnswerFormat(kind="lark", source=checked.source()), "The tools together")
    grammar = CallGrammar(known, use, target.model)
    return grammar.source(), grammar.marks
