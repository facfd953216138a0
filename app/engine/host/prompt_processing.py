"""Feeds a prompt to the target, a chunk at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator

from app.engine.decoding.images import piece_end
from app.engine.decoding.sampling import Logits
from app.engine.decoding.sequence import TokenSequence
from app.engine.llama.context import Context
from app.errors import Canceled
from app.protocol.events import PromptProgressed


def process_prompt(
    context: Context,
    sequence: TokenSequence,
    request: int,
    should_stop: Callable[[], bool],
    *,
    is_continued: bool,
    needed: int | None,
    after_chunk: Callable[[], None] = lambda: None,
) -> Generator[PromptProgressed, None, Logits]:
    """Process what is new of a prompt; returns the logits of its last token, one row, of which ``needed`` are enough.

    A memory that can't be cut anywhere is marked where the next turn's prompt will begin to differ: most templates
    leave the thinking out of it. ``is_continued``: the prompt ends with a part of an answer. Raises `Canceled`.

    The last token of a long chunk is processed alone, as it is when all others are in the cache: in a wide pass its
    logits would be rounded differently, and the same seed would give another text the second time.
    """
    logits = None
    tokens, end = sequence.tokens, sequence.prompt_length
    places = {sequence.shared_length - 1, end - 1 if is_continued else 0}
    marks = [place for place in places if context.checkpoints.remembers(place)]
    with context.aborting(should_stop):
        while (done := len(context.tokens)) < end:
            if should_stop():
                raise Canceled
            if done in marks:
                context.remember()
            stop = min((mark for mark in marks if mark > done), default=end)
            part_end = piece_end(tokens, done, context.chunk)
            chunk = tokens[done : part_end if tokens[done] < 0 else min(part_end, stop)]
            if tokens[done] >= 0 and done + len(chunk) == end and len(chunk) > context.longest_pass:
                chunk = chunk[:-1]
            last = done + len(chunk) == end
            logits = context.decode_largest(chunk, 1 if last else 0, needed)
            after_chunk()
            if len(context.tokens) < end - 1:
                yield PromptProgressed(request=request, done=len(context.tokens), total=end)
    assert logits is not None, "at least the last token of a prompt is always fed"
    return logits
