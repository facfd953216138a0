"""The grammar that an answer of a loaded target has to follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.detokenizer import TokenTexts
from app.engine.decoding.grammar import Grammar
from app.engine.host.loading import Target
from app.helper.answer_format import checked_grammar
from app.protocol.commands import Generate, ScoreTokens


def grammar_of(target: Target, command: Generate | ScoreTokens) -> Grammar | None:
    """What the answer has to follow. Raises `KnownError` for a format that can't be used."""
    if command.format is None:
        return None
    source = checked_grammar(command.format)
    openings = frozenset[int]() if command.raw else target.thinking.marks.opening_tokens
    return Grammar(target.grammar_vocabulary, source, openings)


def allowed_after(target: Target, command: ScoreTokens, prompt: Sequence[int]) -> NDArray[np.bool_] | None:
    """The tokens that may follow the answer, shape (vocabulary,); ``None``: all of them. Raises `KnownError`."""
    grammar = grammar_of(target, command)
    if grammar is None:
        return None
    marks = None if command.raw else target.thinking.marks
    grammar.follow(TokenTexts(target.model.piece, marks, prompt), command.answer)
    if not grammar.in_force:
        return None
    with grammar.ahead() as ahead:
        return ahead.allowed()
