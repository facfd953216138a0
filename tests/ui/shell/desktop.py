"""The notifications of a desktop."""

from __future__ import annotations

from collections.abc import Callable

from app.ui.widgets.questions import Notifier


class Desktop(Notifier):
    """A system that has notifications and shows them to nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, str]] = []
        self.click: Callable[[], object] = lambda: None

    def tell(self, title: str, text: str, clicked: Callable[[], object]) -> None:
        self.told.append((title, text))
        self.click = clicked
