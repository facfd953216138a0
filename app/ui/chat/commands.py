"""What the buttons among the messages do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _nothing(*_: object) -> None:
    """Nobody has said yet what a button does."""


@dataclass
class ChatCommands:
    """Called by the views; whoever owns the transcript fills it in. Messages are named by their ids."""

    regenerate: Callable[[str], object] = _nothing
    compare: Callable[[str], object] = _nothing
    edit: Callable[[str, str], object] = _nothing
    """With the new wording."""
    choose_version: Callable[[str, int], object] = _nothing
    """So many versions on: -1 or 1."""
    ask: Callable[[str], object] = _nothing
    """An example of the empty chat."""
    open_models: Callable[[], object] = _nothing
    get_proposed: Callable[[], object] = _nothing
    """The pair that the card of the first start proposes."""
    hide_guide_card: Callable[[], object] = _nothing
