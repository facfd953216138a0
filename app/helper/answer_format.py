"""Has the helper process check the format of an answer before an engine compiles it. For engine and window."""

from __future__ import annotations

from collections.abc import Sequence

from app import helper
from app.helper.messages import CheckAnswer, CheckGrammar, GrammarChecked, GrammarFailed
from app.protocol.options import AnswerFormat
from app.system import KnownError

NAMES = {
    "json_object": "The JSON format",
    "json_schema": "The JSON schema",
    "regex": "The regular expression",
    "lark": "The grammar",
    "gbnf": "The grammar",
}


def checked_grammar(wanted: AnswerFormat, name: str = "", *, lenient: bool = False) -> GrammarChecked:
    """``wanted`` in llguidance's notation. ``name`` is for error messages; ``lenient`` drops invalid parts of a schema.

    Raises `KnownError` that says what is wrong and, if known, where.
    """
    name = name or NAMES[wanted.kind]
    try:
        found = helper.shared().ask(CheckGrammar(wanted.kind, wanted.source, lenient))
    except (helper.TookTooLong, helper.TooMuchMemory) as error:
        raise KnownError(f"{name} is too complex to be checked. Use a simpler one.") from error
    except helper.NotStarted as error:
        raise KnownError(f"{name} can't be checked ({error}). Close other programs and try again.") from error
    except helper.HelperError as error:
        raise KnownError(f"{name} can't be used: checking it failed. Use a simpler one.") from error
    if isinstance(found, GrammarFailed):
        raise KnownError(f"{name} can't be used: {found.detail.rstrip('.')}.")
    if wanted.strict and (unknown := [one for one in found.notes if one.startswith("“$ref”")]):
        raise KnownError(f"{name} can't be used with “strict”: {unknown[0]} isn't known here.")
    return found


def left_to_model(notes: Sequence[str]) -> str:
    """A sentence about the parts of a schema that can't be enforced; empty if there are none."""
    return f"Left to the model: {', '.join(notes)}." if notes else ""


def is_valid(wanted: AnswerFormat, answer: str) -> bool | None:
    """Whether a finished ``answer`` matches the JSON schema; ``None``: it can't be checked."""
    try:
        problem = helper.shared().ask(CheckAnswer(wanted.source, answer)).problem
    except helper.HelperError:
        return None
    return None if problem is None else not problem
