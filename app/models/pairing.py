"""Whether a draft model fits a target, judged by their tokenizers, never by names.

The rules are those of llama.cpp's own speculative decoding (``common/speculative.cpp``). Its library doesn't check
them, and a draft with another vocabulary would silently propose nonsense. Whether rejected tokens can be undone is
another question, answered at loading by `app.engine.llama.checkpoints` for models with a recurrent state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from app import words
from app.models.gguf import GgufHeader, ModelFacts
from app.models.gguf_parser import Tokenizer, TokenizerFacts
from app.models.heads import head_title, is_head_only, mismatch
from app.words import printable

MAX_SIZE_DIFFERENCE = 128
FIRST_COMPARED_ID = 5
"""The first token ids are special tokens, which may be spelled differently."""
LARGE_DRAFT_SHARE = 1 / 3


class Difference(NamedTuple):
    """The first token that differs between two vocabularies."""

    id: int
    target: str
    """Safe to display."""
    draft: str


@dataclass(frozen=True)
class Verdict:
    """Whether a pair fits, and why, for the user."""

    fits: bool
    reason: str
    """One plain sentence."""
    warning: str | None = None
    """A disadvantage of a pair that fits."""
    note: str | None = None
    """A question about a pair that fits, which only loading answers."""
    target_tokens: int = 0
    draft_tokens: int = 0
    first_difference: int | None = None
    """The first token id whose texts differ."""


def compare(target: GgufHeader, draft: GgufHeader) -> Verdict:
    """Decide whether ``draft``, a model or a file with only a head, can draft for ``target``."""
    first, second = target.tokenizer, draft.tokenizer
    different = partial(first_difference, first, second) if first and second else lambda: None
    if is_head_only(draft):
        if problem := mismatch(target, draft):
            return Verdict(False, problem)
        found = different()  # as after repairs of single tokens, which the engine has no reason to refuse
        warning = f"{_different_token(found)} Where tokens differ, drafts are always rejected." if found else None
        return Verdict(
            True, f"Compatible: the {head_title(draft.architecture)} in this file belongs to the target.", warning
        )
    return judge(target, draft, different)


def judge(target: ModelFacts, draft: ModelFacts, difference: Callable[[], Difference | None]) -> Verdict:
    """Decide from the facts about both; calls ``difference`` only if nothing else decides."""
    first, second = target.tokenizer, draft.tokenizer
    if first is None or second is None:
        return Verdict(False, f"The {'target' if first is None else 'draft'} has no tokenizer to compare.")
    different = None
    problem = _kind_problem(first, second) or _special_problem(first, second) or _size_problem(first, second)
    if problem is None and first.fingerprint != second.fingerprint:
        different = difference()
        if different is not None:
            problem = _different_token(different)
    return Verdict(
        fits=problem is None,
        reason=problem or _fit(first, second),
        warning=_size_warning(target, draft) if problem is None else None,
        note=_rolling_back_note(target, draft) if problem is None else None,
        target_tokens=first.size,
        draft_tokens=second.size,
        first_difference=None if different is None else different.id,
    )


def first_difference(first: Tokenizer, second: Tokenizer) -> Difference | None:
    """The first token from `FIRST_COMPARED_ID` on, in both vocabularies, whose texts differ."""
    if first.fingerprint == second.fingerprint:
        return None
    pairs = zip(first.tokens, second.tokens, strict=False)
    for index, (ours, theirs) in enumerate(islice(pairs, FIRST_COMPARED_ID, None), FIRST_COMPARED_ID):
        if ours != theirs:
            return Difference(index, printable(ours), printable(theirs))
    return None


def _different_token(found: Difference) -> str:
    return (
        f'The vocabularies differ: token {words.number(found.id)} is "{found.target}" in the target and '
        f'"{found.draft}" in the draft.'
    )


def _kind_problem(first: TokenizerFacts, second: TokenizerFacts) -> str | None:
    if first.kind == second.kind:
        return None
    return (
        f"The vocabularies are of different kinds: {printable(first.kind)} in the target, {printable(second.kind)} "
        "in the draft."
    )


def _special_problem(first: TokenizerFacts, second: TokenizerFacts) -> str | None:
    begins = _rule_problem("begin-of-text", "begin", (first.add_bos, first.bos_id), (second.add_bos, second.bos_id))
    return begins or _rule_problem("end-of-text", "end", (first.add_eos, first.eos_id), (second.add_eos, second.eos_id))


def _rule_problem(token: str, verb: str, target: tuple[bool, int | None], draft: tuple[bool, int | None]) -> str | None:
    if target[0] != draft[0]:
        adds, lacks = ("target", "draft") if target[0] else ("draft", "target")
        return f"The {adds} {verb}s every text with its {token} token, but the {lacks} doesn't."
    if target[0] and target[1] != draft[1]:
        return f"The {token} token is {_id(target[1])} in the target and {_id(draft[1])} in the draft."
    return None


def _id(number: int | None) -> str:
    return "none" if number is None else f"number {words.number(number)}"


def _size_problem(first: TokenizerFacts, second: TokenizerFacts) -> str | None:
    if abs(first.size - second.size) <= MAX_SIZE_DIFFERENCE:
        return None
    sizes = f"{words.number(first.size)} tokens in the target and {words.number(second.size)} in the draft"
    return f"The vocabularies differ in size: {sizes}. At most {MAX_SIZE_DIFFERENCE} tokens of difference are allowed."


def _fit(first: TokenizerFacts, second: TokenizerFacts) -> str:
    if first.size == second.size:
        return f"Compatible: same vocabulary of {words.number(first.size)} tokens."
    sizes = f"{words.number(first.size)} tokens in the target and {words.number(second.size)} in the draft"
    return f"Compatible: same vocabulary, with {sizes}."


def _size_warning(target: ModelFacts, draft: ModelFacts) -> str | None:
    share = draft.tensor_bytes / target.tensor_bytes if target.tensor_bytes else 0.0
    if share <= LARGE_DRAFT_SHARE:
        return None
    return (
        f"The draft is {words.share(share)} of the target's size. A draft this large may cost more time than it saves."
    )


def _rolling_back_note(target: ModelFacts, draft: ModelFacts) -> str | None:
    """`app.engine.llama.checkpoints` finds out whether it works."""
    for role, model in (("target", target), ("draft", draft)):
        if model.running_state is not None:
            return (
                f"The {role} is a {model.running_state} model: whether it can undo rejected tokens is tested when "
                "it is loaded."
            )
    return None
