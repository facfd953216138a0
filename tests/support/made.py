"""Models that tests share, each made when the first of them asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Made(dict[Key, Value]):
    """What ``make`` made for each key that was asked for."""

    def __init__(self, make: Callable[[Key], Value]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Key) -> Value:
        self[key] = made = self._make(key)
        return made
