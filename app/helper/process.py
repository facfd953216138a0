"""The helper process: requests on stdin, answers on stdout, one after another until the end of the input."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO

from app import system
from app.helper import limits
from app.helper.messages import (
    REQUESTS,
    ChatsRead,
    CheckAnswer,
    CheckGrammar,
    CheckTemplate,
    DrawPage,
    Highlight,
    LookAtImage,
    ReadChats,
    ReadFile,
    ReadMoreChats,
    RenderFormula,
    RenderMarkdown,
    RenderTemplate,
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
        os._exit(0)  # the parent is gone, and flushing would fail again
    return 0


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more, or until this process has grown large.

    An empty frame tells the client that a request begins: imports before it don't count toward its time.
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


def _prepared(request: Request[Any]) -> Callable[[], Any]:
    """The function that answers ``request``, after importing what it needs."""
    match request:
        case Highlight():
            from app.helper import highlighting

            return partial(highlighting.highlight, highlighting.lexer(request.language), request.text)
        case ReadChats() | ReadMoreChats():
            from app.helper import chats

            return partial(chats.answer, request)
        case ReadFile() | LookAtImage() | DrawPage():
            from app.helper.files import reading

            return partial(reading.answer, request)
        case RenderMarkdown():
            from app.helper import rendering

            rendering.prepare(request)
            return partial(rendering.answer, request)
        case RenderFormula():
            from app.helper import formulas

            return partial(formulas.answer, request)
        case CheckGrammar():
            from app.helper import grammars

            return partial(grammars.answer, request)
        case CheckAnswer():
            from app.helper import grammars

            return partial(grammars.check_answer, request)
    from app.helper import templates

    assert isinstance(request, CheckTemplate | RenderTemplate)
    return partial(templates.answer, request)
