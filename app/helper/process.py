"""The helper process: requests on stdin, answers on stdout, one after another until the end of the input."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import BinaryIO

from app import system
from app.helper import limits
from app.helper.messages import (
    REQUESTS,
    Answer,
    ChatsRead,
    CheckAnswer,
    CheckGrammar,
    DrawPage,
    Highlight,
    LookAtImage,
    ReadChats,
    ReadFile,
    ReadMoreChats,
    RenderFormula,
    RenderMarkdown,
    Request,
)
from app.protocol import frames

_SLOW = (ReadChats, ReadMoreChats, ReadFile, DrawPage)


def run() -> int:
    """The entry point of the helper process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = system.claim_streams(discards=True)
    limits.confine()
    try:
        serve(requests, answers)
    except MemoryError:
        os._exit(limits.MEMORY_STATUS)
    except BrokenPipeError:
        os._exit(0)  # nobody reads; flushing would fail again
    return 0


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Carry out requests until there are no more, or until this process has grown large.

    An empty frame announces that the request starts: what comes before it (imports) doesn't count toward its time.
    """
    while (body := frames.read(requests)) is not None:
        request = frames.decode(REQUESTS, body)
        carry_out = _prepared(request)
        limits.allow_request(limits.READING_SECONDS if isinstance(request, _SLOW) else limits.TIME_LIMIT_SECONDS)
        frames.write(answers, b"")
        answer = carry_out()
        frames.write(answers, frames.encode(answer))
        is_reading = isinstance(answer, ChatsRead) and not answer.batch.is_over
        if limits.is_large() and not is_reading:
            return


def _prepared(request: Request) -> Callable[[], Answer]:
    """The function that carries out ``request``, with everything imported that it needs."""
    if isinstance(request, Highlight):
        from app.helper import highlighting

        lexer = highlighting.lexer(request.language)
        return lambda: highlighting.highlight(lexer, request.text)
    if isinstance(request, ReadChats | ReadMoreChats):
        from app.helper import chats

        return lambda: chats.answer(request)
    if isinstance(request, ReadFile):
        from app.helper.files import reading

        return lambda: reading.answer(request)
    if isinstance(request, DrawPage):
        from app.helper.files import pages

        return lambda: pages.answer(request)
    if isinstance(request, LookAtImage):
        from app.helper.files import images

        return lambda: images.answer(request)
    if isinstance(request, RenderMarkdown):
        from app.helper import rendering

        rendering.prepare(request)
        return lambda: rendering.answer(request)
    if isinstance(request, RenderFormula):
        from app.helper import formulas

        return lambda: formulas.answer(request)
    if isinstance(request, CheckGrammar):
        from app.helper import grammars

        return lambda: grammars.answer(request)
    if isinstance(request, CheckAnswer):
        from app.helper import grammars

        return lambda: grammars.check_answer(request)
    from app.helper import templates

    return lambda: templates.answer(request)
