"""The tokens of an answer of which only the text is known, so that it can go on where it was cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.engine.decoding.detokenizer import TokenTexts, answer_text
from app.engine.decoding.prompt import ChatTokenizer
from app.engine.decoding.thinking import Marks
from app.protocol.commands import Message
from app.protocol.events import Piece


def tokens_behind(
    prompt: Sequence[int],
    answer: Message,
    tokenizer: ChatTokenizer,
    piece: Callable[[int], bytes],
    marks: Marks,
    between: str,
) -> list[int] | None:
    """Tokens that give exactly what ``answer`` thought and said, with the marks around the thinking.

    An answer that has only thinking still thinks. ``piece`` gives the bytes of a token; ``between`` is what the
    template writes between thinking and answer, empty if that is not known. ``None`` where there are no such tokens.
    """
    texts = TokenTexts(piece, marks, prompt)
    tokens: list[int] = []
    pieces: list[Piece] = []

    def write(new: list[int]) -> None:
        tokens.extend(new)
        pieces.extend(shown for token in new for shown in texts.add(Piece(text="", id=token)))

    def write_mark(mark: str) -> None:
        write(tokenizer.tokens((mark, {}), goes_on=True))

    if answer.thinking:
        if not texts.thinking:
            write_mark(marks.opening)
        write(tokenizer.continued(answer.thinking))
    if answer.content:
        write_mark(texts.between(between) if texts.thinking else "" if answer.thinking else marks.answer_opening)
        write(tokenizer.continued(answer.content))
    pieces += texts.end(cut=True)
    thinking = "".join(one.text for one in pieces if one.thinking)
    is_same = thinking == answer.thinking and "".join(map(answer_text, pieces)) == answer.content
    return tokens if is_same else None
