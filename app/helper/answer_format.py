"""What an answer has to follow, checked in the helper process before an engine compiles it. For engine and window."""

from __future__ import annotations

from app import helper
from app.errors import KnownError
from app.helper.messages import CheckGrammar, GrammarFailed
from app.protocol.options import AnswerFormat

NAMES = {
    "json_object": "The JSON format",
    "json_schema": "The JSON schema",
    "regex": "The regular expression",
    "lark": "The grammar",
    "gbnf": "The grammar",
}


def checked_grammar(wanted: AnswerFormat, name: str = "") -> str:
    """``wanted`` in llguidance's notation; ``name``: what it is for the user, by default its kind. Raises `KnownError`,
    with the place of a mistake where it is known.
    """
    name = name or NAMES[wanted.kind]
    try:
        found = helper.shared().check_grammar(CheckGrammar(wanted.kind, wanted.source))
    except (helper.TookTooLong, helper.TooMuchMemory) as error:
        raise KnownError(f"{name} is too complex to be checked. Use a simpler one.") from error
    except helper.NotStarted as error:
        raise KnownError(f"{name} can't be checked ({error}). Close other programs and try again.") from error
    except helper.HelperError as error:
        raise KnownError(f"{name} can't be used: checking it failed. Use a simpler one.") from error
    if isinstance(found, GrammarFailed):
        raise KnownError(f"{name} can't be used: {found.detail.rstrip('.')}.")
    return found.grammar
