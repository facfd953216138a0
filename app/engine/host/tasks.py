"""What a `Generate` asks of the loop, for a loaded target."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from app.engine.decoding.prompt import Prompt
from app.engine.decoding.sequence import Task
from app.engine.host.answer_grammar import grammar_of
from app.engine.host.loading import Target
from app.errors import KnownError
from app.protocol.answering import with_fields_of
from app.protocol.commands import Generate


def task_for(target: Target, command: Generate, prompt: Prompt) -> Task:
    """How to answer. Raises `KnownError` for a format or tools that can't be used."""
    followed = grammar_of(target, command)
    return with_fields_of(
        Task,
        command,
        seed=command.seed if command.seed is not None else secrets.randbelow(2**31),
        stop=[*command.stop, *prompt.stops],
        accept="coupled" if command.accept == "exact" else command.accept,
        marks=None if command.raw else target.thinking.marks,
        between=target.thinking.between,
        closing=lambda text: target.prompts.tokenizer.tokens((text, {}), goes_on=True),
        grammar=followed.grammar,
        notes=followed.notes,
        is_valid=followed.is_valid,
        mark_texts=followed.mark_texts,
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
