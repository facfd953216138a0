"""Very long messages are folded: only the beginning is shown, with a button for the rest."""

from __future__ import annotations

FOLD_CHARACTERS = 12_000
FOLD_LINES = 200
"""A message with more characters or lines is folded."""
SHOWN_CHARACTERS = 5000
SHOWN_LINES = 80
"""So much of it, at most, is shown then."""
SHOW_LESS_TEXT = "Show less"


def folded_length(text: str) -> int | None:
    """How many characters of a long text are shown while it is folded; ``None`` where it is not long.

    The cut is behind a paragraph or a line where one ends in the second half, else between two words.
    """
    if len(text) <= FOLD_CHARACTERS and text.count("\n") < FOLD_LINES:
        return None
    end = 0
    for _ in range(SHOWN_LINES):
        end = text.find("\n", end) + 1 or len(text)
        if end > SHOWN_CHARACTERS:
            end = SHOWN_CHARACTERS
            break
    half = end // 2
    for separator in ("\n\n", "\n", " "):
        cut = text.rfind(separator, half, end)
        if cut >= 0:
            return cut + 1
    return end
