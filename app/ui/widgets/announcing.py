"""What a screen reader is to say without being asked."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget


def announce(source: QWidget, text: str, *, is_urgent: bool = False) -> None:
    """Have ``text`` said when the screen reader is done with what it is saying; where it ``is_urgent``, at once.

    ``source`` is where it comes from. Nothing happens while no screen reader runs.
    """
    from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent

    if text and QAccessible.isActive():
        event = QAccessibleAnnouncementEvent(source, text)
        politeness = QAccessible.AnnouncementPoliteness
        event.setPoliteness(politeness.Assertive if is_urgent else politeness.Polite)
        QAccessible.updateAccessibility(event)
