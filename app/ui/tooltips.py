"""Tool tips for text that is not ours."""

from __future__ import annotations

import html


def plain_tooltip(text: str) -> str:
    """A tool tip cannot be told that it is plain text, so the text is escaped."""
    return f"<qt>{html.escape(text).replace(chr(10), '<br>')}</qt>" if text else ""
