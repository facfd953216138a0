"""The task of writing an answer, and the tokens of a prompt and its answer, for the loop and the drafters.

The tokens are stored only here: everyone reads them here and keeps no copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.engine.decoding.grammar import Grammar
from app.engine.decoding.images import has_images, text_of
from app.engine.decoding.sampling import logits_needed
from app.engine.decoding.thinking import Marks
from app.protocol.answering import AnswerSettings

_COMPARED = 512
"""How many tokens are compared at once."""


class Task(AnswerSettings, frozen=True, kw_only=True):
    """How to choose the tokens of one answer, and where it ends."""

    seed: int
    continued: Sequence[int] = ()
    """Tokens after which it continues, which count as part of the prompt."""
    private: bool = False
    logprobs: int | None = None
    logit_bias: Mapping[int, float] = {}
    """These as in `Generate`."""
    marks: Marks | None = None
    """``None``: none of it is thinking."""
    between: str = ""
    """What the template writes between thinking and answer, if known."""
    closing: Callable[[str], Sequence[int]] = lambda _: ()
    """The tokens of a text that are forced to end the thinking."""
    grammar: Grammar | None = None
    """What the answer has to follow."""
    notes: Sequence[str] = ()
    """What isn't in the grammar."""
    is_valid: Callable[[str], bool | None] = lambda _: None
    """Checks a finished answer for that."""
    mark_texts: Mapping[int, bytes] = {}
    """What is shown of control tokens."""
    unit: int = 1
    """Verify passes are padded to a multiple of so many tokens, and have at most `EXACT_WIDTH`; 1: neither."""

    @property
    def needed(self) -> int | None:
        """`logits_needed`. A grammar or a bias can leave only unlikely tokens, and probabilities are shares of a sum:
        all of these need all logits."""
        needs_all = self.grammar or self.logit_bias or self.logprobs is not None
        return None if needs_all else logits_needed(self.sampling)


class TokenSequence:
    """A prompt and its answer. A token's index is its position.

    The loop appends to it; drafters and others read it. A KV cache has a list of its own: it may contain less than this
    or more, and outlives the answer.
    """

    def __init__(self, prompt: Sequence[int] = (), shared: int | None = None) -> None:
        """The answer begins after ``prompt``, of which the next turn's prompt will begin with ``shared`` tokens."""
        self.tokens = list(prompt)
        """Prompt and answer, to be read by index; only `append` changes it."""
        self.prompt_length = len(self.tokens)
        self.shared_length = self.prompt_length if shared is None else shared
        """Tokens of the prompt that the next turn's prompt is expected to begin with."""
        self.left_out = 0
        """In a sequence without its images: how many cells these have. All of them belong to the prompt."""
        self._text: TokenSequence | None = None
        if has_images(self.tokens):
            self._text = TokenSequence(text_of(self.tokens), len(text_of(self.tokens[: self.shared_length])))
            self._text.left_out = len(self) - len(self._text)

    @property
    def text(self) -> TokenSequence:
        """The same without images, which only the target can process: for drafters, and for penalties."""
        return self._text or self

    @property
    def has_images(self) -> bool:
        """Whether there are images in it."""
        return self._text is not None

    def __len__(self) -> int:
        return len(self.tokens)

    def append(self, token: int) -> None:
        """Add ``token`` to the answer."""
        self.tokens.append(token)
        if self._text is not None:
            self._text.append(token)

    def last(self, count: int) -> list[int]:
        """The last ``count`` tokens, or fewer if there aren't as many."""
        return self.tokens[-count:] if count else []

    def shared_with(self, other: TokenSequence) -> int:
        """How many tokens both have in common at the beginning."""
        return shared_prefix(self.tokens, other.tokens)


def shared_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences have in common at the beginning."""
    end = min(len(one), len(other))
    for start in range(0, end, _COMPARED):
        stop = min(start + _COMPARED, end)
        if one[start:stop] == other[start:stop]:  # for lists this is several times faster than token by token
            continue
        for index in range(start, stop):
            if one[index] != other[index]:
                return index
    return end
