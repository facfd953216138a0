"""Answers that have to follow a grammar: which tokens may come next, by llguidance.

The grammar masks the target's distribution before anything is cut from it. A draft is tested against the masked
distribution, so an answer is the same with and without a draft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding import Vocabulary
from app.engine.decoding.text import TokenTexts
from app.protocol.events import Piece
from app.system import KnownError

# llguidance takes 50 ms to import: only when an answer has a format, not whenever an engine starts.
if TYPE_CHECKING:
    import llguidance

_LINE_BREAKS = 2
"""Tokens of line breaks that may stand between thinking and answer."""
_SPECIAL = b"\xff"
"""In front of the name of a token that is no text."""
_TOO_COMPLEX = "The answer's format is too complex at this point ({reason}). Use a simpler schema or grammar."
_ELSEWHERE = "This answer can't be continued because it doesn't follow the chosen format. Regenerate it."


class GrammarVocabulary:
    """The tokens of one model as llguidance needs them. Made once: 150,000 tokens take about a second."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        import llguidance

        self.size = vocabulary.vocabulary_size
        ids = range(self.size)
        self.ends = frozenset(filter(vocabulary.is_end, ids))
        self.line_breaks = frozenset(token for token in ids if set(vocabulary.piece(token)) == set(b"\n"))
        self.is_end = vocabulary.is_end
        self.tokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_Tokens(vocabulary, min(self.ends, default=0))),
            eos_token=sorted(self.ends) or None,
        )


class _Tokens:
    """In the form that `llguidance.TokenizerWrapper` takes."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, end: int) -> None:
        self._vocabulary = vocabulary
        self.eos_token_id = end
        names = [_name(vocabulary, token) for token in range(vocabulary.vocabulary_size)]
        self.tokens = names
        self.special_token_ids = [token for token, name in enumerate(names) if name.startswith(_SPECIAL)]
        start = vocabulary.tokenize("a", special=False, bos=False)
        self._adds_space = b"".join(map(vocabulary.piece, start)) != b"a"

    def __call__(self, text: bytes | str) -> list[int]:
        """The tokens that a text in the middle of an answer has."""
        shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
        if not self._adds_space:
            return self._vocabulary.tokenize(shown, special=False, bos=False)
        # The space goes in front of the line break, which is a token of its own in vocabularies that add one.
        tokens = self._vocabulary.tokenize("\n" + shown, special=False, bos=False)
        start = next((i for i, token in enumerate(tokens, 1) if self._vocabulary.piece(token) == b"\n"), 0)
        return tokens[start:]


def _name(vocabulary: Vocabulary, token: int) -> bytes:
    """The bytes of a token; those of a mark are no text, because its text, spelled, is other tokens."""
    mark, piece = vocabulary.mark(token), vocabulary.piece(token)
    return _SPECIAL + mark.encode() if mark and is_mark(mark, piece) else piece


def is_mark(name: str, piece: bytes) -> bool:
    """Whether a control or user-defined token with this ``name`` and ``piece`` isn't text."""
    return not piece or (name.startswith("<") and name.endswith(">"))


class Grammar:
    """Where one answer is in its grammar, which isn't in force while the model thinks.

    An answer may begin with a mark that opens thinking, if it is one token, and thinking may be followed by line
    breaks: these tokens are ``extra``.
    """

    def __init__(
        self,
        vocabulary: GrammarVocabulary,
        source: str,
        openings: frozenset[int] = frozenset(),
        *,
        mark_texts: Mapping[int, bytes] | None = None,
        notes: Sequence[str] = (),
        is_whole: bool = False,
        is_valid: Callable[[str], bool | None] = lambda _: None,
    ) -> None:
        """``source``: what the helper answers (`app.helper.messages.GrammarChecked`). ``openings``: tokens that open
        thinking. ``mark_texts``: what is shown of control tokens. ``notes``: sentences about what isn't forced, for
        which ``is_valid`` checks a finished answer (``None``: that can't be found out, or all is forced). ``is_whole``:
        it has the thinking, too.

        Raises `KnownError` if llguidance refuses it, or the model has no token that ends an answer.
        """
        import llguidance

        from app.helper.grammars import limits

        if not vocabulary.ends:
            raise KnownError("This model has no token that ends an answer, so its answers can't follow a format.")
        self.mark_texts = mark_texts or {}
        self.notes = notes
        self.is_valid = is_valid
        self._vocabulary = vocabulary
        self._openings = openings
        self._matcher = llguidance.LLMatcher(vocabulary.tokenizer, source, log_level=0, limits=limits())
        _check(self._matcher)
        self.is_whole = self._has_begun = is_whole
        self.in_force = is_whole
        """Whether the next token has to follow the grammar."""
        self.extra: frozenset[int] = frozenset()
        """Tokens outside of the grammar that may come next."""

    # ------------------------------------------------------------ the answer

    def look(self, texts: TokenTexts) -> None:
        """Decide whether the grammar is in force from here on. Called before an answer and after each token."""
        if self._has_begun:
            return
        splitter = texts.splitter
        was_in_force, self.in_force = self.in_force, splitter.answers
        if self.in_force and not was_in_force and splitter.has_begun:
            raise KnownError("The model began its answer within the mark that ends its thinking. Regenerate it.")
        self.extra = frozenset()
        if self.in_force and splitter.opens:
            self.extra = self._openings
        elif self.in_force and splitter.trims and texts.since_thinking <= _LINE_BREAKS:
            self.extra = self._vocabulary.line_breaks

    def follow(self, texts: TokenTexts, answer: Sequence[int]) -> None:
        """Take the beginning of an ``answer``; ``texts`` are at its start. Raises as `take`."""
        self.look(texts)
        for token in answer:
            self.take(token)
            texts.add(Piece(text="", id=token))
            self.look(texts)

    def take(self, token: int) -> None:
        """The answer goes on with ``token``. Raises `KnownError` if the grammar doesn't allow it."""
        if not self.in_force or token in self.extra or self._vocabulary.is_end(token):
            return
        self._has_begun, self.extra = True, frozenset()
        if not self._matcher.consume_token(token):
            raise KnownError(_ELSEWHERE)

    # ------------------------------------------------------------ what may come next

    def fits(self, draft: Sequence[int]) -> int:
        """How many tokens of a ``draft`` the grammar allows; all of them while it isn't in force."""
        if not self.in_force or not draft:
            return len(draft)
        count = self._matcher.validate_tokens(list(draft))
        _check(self._matcher)
        return int(count)

    def forced(self, most: int) -> list[int]:
        """At most ``most`` tokens whose text has to come next. The same text may have other tokens."""
        if not self.in_force or self.extra or most <= 0:
            return []
        tokens = self._matcher.compute_ff_tokens()[:most]
        _check(self._matcher)
        return tokens

    @contextmanager
    def ahead(self) -> Iterator[Ahead]:
        """``with`` block in which one can look along a draft."""
        ahead = Ahead(self._vocabulary, self._matcher, self.extra)
        try:
            yield ahead
        finally:
            ahead.go_back()


class Ahead:
    """Looks along a draft: which tokens may come where."""

    def __init__(self, vocabulary: GrammarVocabulary, matcher: llguidance.LLMatcher, extra: frozenset[int]) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._extra = extra
        self._taken = 0
        self._has_ended = False

    def allowed(self) -> NDArray[np.bool_]:
        """Which tokens may come next, shape (vocabulary,). Raises `KnownError` if that takes too much work."""
        size = self._vocabulary.size
        if self._has_ended:
            return np.ones(size, bool)
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        _check(self._matcher)
        allowed = np.unpackbits(bits, count=size, bitorder="little").view(np.bool_)
        if self._extra and not self._taken:
            allowed[list(self._extra)] = True
        return allowed

    def take(self, token: int) -> None:
        """The draft goes on with ``token``, which is allowed."""
        if self._vocabulary.is_end(token):
            self._has_ended = True
            return
        self._matcher.consume_token(token)
        _check(self._matcher)
        self._taken += 1

    def go_back(self) -> None:
        """To where the answer is."""
        self._matcher.rollback(self._taken)
        self._taken = 0


def _check(matcher: llguidance.LLMatcher) -> None:
    """Raise `KnownError` if llguidance gave up."""
    if matcher.is_error():
        from app.helper.grammars import first_line

        raise KnownError(_TOO_COMPLEX.format(reason=first_line(matcher.get_error())))
