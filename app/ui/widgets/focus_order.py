"""Where the Tab key goes next."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget


def next_in_focus_order(widget: QWidget) -> QWidget:
    """`QWidget.nextInFocusChain`, without what PySide does besides.

    PySide takes the result for a child of ``widget``. When that is destroyed, everything in the result counts as
    destroyed, too: its document, for one, although a view still shows it. To set the parent that it has undoes this.
    """
    following = widget.nextInFocusChain()
    assert following is not None  # it is a ring
    following.setParent(following.parentWidget())
    return following
