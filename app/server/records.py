"""How requests went, for the log and for whoever shows the last ones: never what was said."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from app.protocol.events import GenerationFinished
from app.protocol.serving import RequestEnded
from app.server.errors import ApiError
from app.server.guard import Headers
from app.server.warnings import Warnings

_log = logging.getLogger("slipstream.server")
_CLIENT = re.compile(rb"[A-Za-z0-9._+-]{1,40}(?:/[A-Za-z0-9._+-]{1,20})?")

Told = Callable[[RequestEnded], None]


class Record:
    """One request, from its arrival to its end."""

    def __init__(self, path: str, client: str, told: Told) -> None:
        """``path``: one of ours, empty for an unknown one."""
        self._path = path
        self._client = client
        self._told = told
        self._begun = time.monotonic()
        self._has_ended = False

    def finished(self, event: GenerationFinished, warnings: Warnings) -> None:
        """An answer was written, although something was left out of the request."""
        if warnings.sentences:
            _log.info("%s %s: %s", self._path, self._client, warnings.for_log)
        figures, seconds = event.figures, time.monotonic() - self._begun
        _log.info(
            "%s %s: %d + %d tokens in %.1f s, %s",
            self._path,
            self._client,
            figures.prompt_tokens,
            figures.completion_tokens,
            seconds,
            event.finish_reason,
        )
        self._end(200, figures.prompt_tokens, figures.completion_tokens)

    def refused(self, error: ApiError) -> None:
        """It wasn't carried out."""
        _log.info("%s %s: %d %s", self._path or "an unknown path", self._client, error.status, error.kind)
        self._end(error.status)

    def answered(self) -> None:
        """It was answered at once."""
        self._end(200)

    def left(self) -> None:
        """No more is sent; that is too early unless something else was said before."""
        self._end(0)

    def _end(self, status: int, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        ended = RequestEnded(
            path=self._path,
            client=self._client,
            status=status,
            seconds=time.monotonic() - self._begun,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
        )
        self._told(ended)


def client_of(headers: Headers) -> str:
    """The program that asks, by its own name; ``?`` if it has none that can be shown."""
    agent = next((value for name, value in headers if name == b"user-agent"), b"")
    match = _CLIENT.match(agent)
    return match.group().decode() if match else "?"
