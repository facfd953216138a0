"""The actions of the window for tests of a view alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from app.ui.actions import Actions, Choice
from app.ui.shell.all_actions import ELSEWHERE, MENUS


class Recorded(Actions):
    """Notes what is carried out and does none of it.

    Attributes:
        done: The names, each with its values.
        calls: The values of each, by name.
        disabled: What can't be done.
        answers: What `run` gives back, by name; a function is called for it.
        offered: The choices, by name.
    """

    def __init__(self, **answers: Any) -> None:
        super().__init__(MENUS, ELSEWHERE)
        self.done: list[tuple[object, ...]] = []
        self.calls: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
        self.disabled: set[str] = set()
        self.answers: Mapping[str, Any] = answers
        self.offered: dict[str, list[Choice]] = {}

    def run(self, name: str, *values: object) -> Any:
        assert name in self.names()
        self.done.append((name, *values))
        self.calls[name].append(values)
        answer = self.answers.get(name)
        return answer(*values) if callable(answer) else answer

    def is_enabled(self, name: str) -> bool:
        assert name in self.names()
        return name not in self.disabled

    def choices(self, name: str, *values: object) -> list[Choice]:  # noqa: ARG002
        return self.offered.get(name, [])
