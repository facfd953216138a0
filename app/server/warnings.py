"""What was left out of a request that is answered all the same.

Readers of requests, and whoever writes the answer (`Answer.warnings`), add sentences. These go into the answer
(``slipstream.warnings``), and into the log without the words of the request, which stand between “ and ” (`quoted`).
"""

from __future__ import annotations

import re

_QUOTED = re.compile(r"“.*”", re.DOTALL)
_LONGEST_QUOTATION = 80
_MOST = 50


class Warnings:
    """Those of one request, each of them once."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self._logged: list[str] = []

    def add(self, sentence: str, logged: str = "") -> None:
        """``logged``: what goes into the log instead, where ``sentence`` quotes the request in another way."""
        if sentence not in self.sentences and len(self.sentences) < _MOST:
            self.sentences.append(sentence)
            self._logged.append(logged or _QUOTED.sub("“…”", sentence))

    @property
    def for_log(self) -> str:
        """Without the words of the request."""
        return " ".join(dict.fromkeys(self._logged))


def quoted(text: object) -> str:
    """A word of the request in a sentence."""
    shown = "".join(sign if sign.isprintable() else "\ufffd" for sign in str(text)[:_LONGEST_QUOTATION])
    return f"“{shown}”"
