"""What a `Generate` asks of the loop, and the grammar that its answer has to follow."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app import words
from app.engine.decoding.grammar import Grammar
from app.engine.decoding.prompt import Prompt
from app.engine.decoding.sequence import Task
from app.engine.decoding.text import TokenTexts
from app.engine.decoding.thinking_splitters import COMMENTARY
from app.engine.decoding.tools import CallGrammar
from app.engine.host.loading import Target
from app.helper.answer_format import checked_grammar, is_valid, left_to_model
from app.protocol.answering import with_fields_of
from app.protocol.commands import Generate, ScoreTokens
from app.protocol.options import MAX_GRAMMAR_CHARACTERS, AcceptRule, AnswerFormat
from app.protocol.tools import FORMATS, Tool, ToolFormat, ToolUse
from app.system import KnownError

_ATTEMPTS = 3
"""At making all tools fit into one grammar."""


def task_for(target: Target, command: Generate, prompt: Prompt) -> Task:
    """How to answer. Raises `KnownError` for a format or tools that can't be used."""
    grammar, tools = grammar_of(target, command), command.tools
    needs_call = grammar is not None and grammar.is_whole and tools is not None and tools.required
    return with_fields_of(
        Task,
        command,
        seed=command.seed if command.seed is not None else secrets.randbelow(2**31),
        stop=[*command.stop, *prompt.stops],
        accept=judged_by(command.accept),
        marks=None if command.raw else target.thinking.marks,
        between=COMMENTARY if needs_call else target.thinking.between,
        closing=lambda text: target.prompts.tokenizer.tokens((text, {}), goes_on=True),
        grammar=grammar,
        unit=target.exact_unit if command.accept == "exact" else 1,
    )


def check_tokens(target: Target, command: Generate) -> None:
    """Raise `KnownError` unless an answer can be continued after the tokens that ``command`` says, and all those that
    it names exist."""
    if unknown_token(target, command.continued) is not None:
        raise KnownError(
            "This answer can't be continued because another model wrote it. Open that model, or regenerate the answer."
        )
    if any(map(target.model.is_end, command.continued)):
        raise KnownError("This answer can't be continued because it is complete. Ask for more instead.")
    unknown = unknown_token(target, list(command.logit_bias))
    if unknown is not None:
        raise KnownError(f"The model has no token {unknown}, which logit_bias names.")


def unknown_token(target: Target, tokens: Sequence[int]) -> int | None:
    """The first of ``tokens`` that the target doesn't have."""
    return next((token for token in tokens if not 0 <= token < target.model.vocabulary_size), None)


def judged_by(rule: AcceptRule) -> AcceptRule:
    """The rule behind ``rule``: ``exact`` only pads passes."""
    return "coupled" if rule == "exact" else rule


def grammar_of(target: Target, command: Generate | ScoreTokens) -> Grammar | None:
    """What the answer has to follow, if anything. Raises `KnownError` for a format that can't be used."""
    openings = frozenset[int]() if command.raw else target.thinking.marks.opening_tokens
    if isinstance(command, Generate) and command.tools and not command.tools.none:
        source, marks, notes = _call_grammar(target, command.tools, command.format)
        is_whole = FORMATS[target.prompts.tokenizer.tool_format].channels
        return Grammar(target.grammar_vocabulary, source, openings, mark_texts=marks, notes=notes, is_whole=is_whole)
    if not command.format:
        return None
    checked = checked_grammar(command.format)
    if not checked.notes:
        return Grammar(target.grammar_vocabulary, checked.grammar, openings)
    notes, check = [left_to_model(checked.notes)], partial(is_valid, command.format)
    return Grammar(target.grammar_vocabulary, checked.grammar, openings, notes=notes, is_valid=check)


def allowed_after(target: Target, command: ScoreTokens, prompt: Sequence[int]) -> NDArray[np.bool_] | None:
    """The tokens that may follow the answer, shape (vocabulary,); ``None``: all of them. Raises `KnownError`."""
    grammar = grammar_of(target, command)
    if grammar is None:
        return None
    marks = None if command.raw else target.thinking.marks
    grammar.follow(TokenTexts(target.model.piece, marks, prompt, by_grammar=True), command.answer)
    if not grammar.in_force:
        return None
    with grammar.ahead() as ahead:
        return ahead.allowed()


def _call_grammar(
    target: Target, use: ToolUse, format: AnswerFormat | None
) -> tuple[str, Mapping[int, bytes], list[str]]:
    """The grammar, in llguidance's notation, of an answer with calls or in a JSON ``format``; the texts of its control
    tokens; and what it doesn't force."""
    known = FORMATS[target.prompts.tokenizer.tool_format]
    if len(msgspec.json.encode(use)) > MAX_GRAMMAR_CHARACTERS:
        raise KnownError(f"The tools have more than {words.number(MAX_GRAMMAR_CHARACTERS)} characters together.")
    found = list(map(_checked_parameters, use.tools))
    checked = checked_grammar(format) if format else None
    answer = {"type": "object"} if format and format.kind == "json_object" else checked.schema if checked else None
    grammar = CallGrammar(known, use, target.model, _forced_together(known, use, found), answer)
    source = grammar.source()
    notes = [left_to_model(checked.notes)] if checked and checked.notes else []
    for tool, (_, inner) in zip(use.tools, found, strict=True):
        unforced = list(dict.fromkeys([*inner, *grammar.notes.get(tool.name, ())]))
        if unforced and tool.strict:
            raise KnownError(f"The parameters of the tool {tool.name} can't be forced as “strict” asks: {unforced[0]}.")
        notes += [f"Parameters of {tool.name}: {left_to_model(unforced)}"] if unforced else []
    return source, grammar.marks, notes


def _checked_parameters(tool: Tool) -> tuple[dict[str, Any], list[str]]:
    """What of the parameters of one tool can be forced, and what can't."""
    schema = {**tool.parameters, "type": "object"}
    try:
        found = checked_grammar(AnswerFormat(kind="json_schema", source=json.dumps(schema)), lenient=True)
    except KnownError as error:
        return {}, [f"the schema as a whole ({str(error).rstrip('.')})"]
    return found.schema, found.notes


def _forced_together(
    known: ToolFormat, use: ToolUse, found: list[tuple[dict[str, Any], list[str]]]
) -> list[dict[str, Any]]:
    """What can be forced of the tools in one grammar. If that is too large, the largest schemas are left out."""
    schemas = [schema for schema, _ in found]
    for attempt in range(_ATTEMPTS + 1):
        source = CallGrammar(known, use, forced=schemas).source()
        try:
            checked_grammar(AnswerFormat(kind="lark", source=source), "The tools together")
        except KnownError:
            if attempt == _ATTEMPTS:
                raise
            by_size = sorted(range(len(schemas)), key=lambda place: -len(msgspec.json.encode(schemas[place])))
            for place in by_size[: 1 if attempt < _ATTEMPTS - 1 else None]:
                schemas[place] = {}
                found[place][1].append("the schema as a whole")
        else:
            break
    return schemas
