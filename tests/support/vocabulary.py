"""A vocabulary without a model: tests override what they look at."""

# ruff: noqa: ARG002

from __future__ import annotations

from app.protocol.commands import Image


class FakeVocabulary:
    """One token a character; nothing is special, and nothing ends."""

    vocabulary_size = 0x110000

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]:
        return list(map(ord, text))

    def image(self, image: Image) -> list[int]:
        raise AssertionError(image)

    def piece(self, token: int) -> bytes:
        return chr(token).encode()

    def mark(self, token: int) -> str:
        return ""

    def is_end(self, token: int) -> bool:
        return False

    def chat_template(self, name: str = "") -> str | None:
        return None

    def special_text(self, which: str) -> str:
        return ""

    def special_texts(self) -> tuple[list[str], list[str]]:
        return [], []
