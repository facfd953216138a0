"""What a screen reader would be given to say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QAccessibleEvent


@dataclass
class Hearing:
    """Announcements in their order, those that interrupt what is being said in ``urgent``, too."""

    said: list[str] = field(default_factory=list)
    urgent: list[str] = field(default_factory=list)

    def take(self, event: QAccessibleEvent) -> None:
        if isinstance(event, QAccessibleAnnouncementEvent):
            self.said.append(event.message())
            if event.politeness() is QAccessible.AnnouncementPoliteness.Assertive:
                self.urgent.append(event.message())


@contextmanager
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hearing]:
    """A screen reader runs meanwhile. PySide has no way to be told of events, so they are taken where they are sent,
    and sent on."""
    hearing, send = Hearing(), QAccessible.updateAccessibility

    def take(event: QAccessibleEvent) -> None:
        hearing.take(event)
        send(event)

    with monkeypatch.context() as patch:
        patch.setattr(QAccessible, "updateAccessibility", take)
        QAccessible.setActive(True)
        try:
            yield hearing
        finally:
            QAccessible.setActive(False)
