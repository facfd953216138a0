"""Thinking that a server sends as part of the answer, between ``<think>`` and ``</think>``, because nobody told it to
separate them.
"""

from __future__ import annotations

_OPENING, _CLOSING = "<think>", "</think>"


class ThinkMarks:
    """Splits an answer that begins with the opening mark; any other is left as it is."""

    def __init__(self) -> None:
        self._held = ""
        """What may be a mark, or the beginning of one."""
        self._is_open: bool | None = None
        """``None``: the answer has yet to begin; ``False``: there is no thinking any more."""

    def split(self, text: str) -> tuple[str, str]:
        """Thinking and answer in more text, without the marks. What may be part of a mark comes with a later call."""
        if self._is_open is False:
            return "", text
        self._held += text
        if self._is_open is None and not self._opens():
            return "", ""
        if not self._is_open:
            return "", self._rest()
        thought, found, answer = self._held.partition(_CLOSING)
        if found:
            self._held, self._is_open = "", False
            return thought, answer.lstrip("\n")
        kept = _overlap(self._held, _CLOSING)
        thought, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return thought, ""

    def rest(self) -> tuple[str, str]:
        """Thinking and answer in what was held back, at the end."""
        was_open, rest = self._is_open, self._rest()
        return (rest, "") if was_open else ("", rest)

    def _opens(self) -> bool:
        """Whether it is known by now how the answer begins."""
        begun = self._held.lstrip()
        if begun.startswith(_OPENING):
            self._held, self._is_open = begun[len(_OPENING) :].lstrip("\n"), True
        elif not _OPENING.startswith(begun):
            self._is_open = False
        return self._is_open is not None

    def _rest(self) -> str:
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, mark: str) -> int:
    """How many characters at the end of ``text`` are the beginning of ``mark``."""
    return next((length for length in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:length])), 0)
