"""What the windows "Models" and "Settings" need from the rest of the app."""

from __future__ import annotations

from typing import Protocol

from app.models.machine_memory import MachineMemory
from app.settings import Pair


class ModelCommands(Protocol):
    """The app's commands that concern models."""

    def machine(self) -> MachineMemory:
        """The current memory; may be called from any thread."""
        ...

    def is_loaded(self, path: str) -> bool:
        """Whether the engine has this file, or is loading it."""
        ...

    def open_pair(self, target: str, draft: str = "") -> None:
        """Show a target, and a draft or an empty text, in the Open models dialog."""
        ...

    def load_pair(self, target: str, draft: str = "") -> None:
        """Load a target with a draft, or with an empty text without."""
        ...

    def hide_starter(self) -> None:
        """No longer list or offer the starter model."""
        ...

    def show_folders(self) -> None:
        """Show the folders with models, which the user can change there."""
        ...

    def ask_for_token(self) -> None:
        """Let the user enter the access token."""
        ...

    def tell_downloaded(self, title: str, pair: Pair) -> None:
        """A download is complete."""
        ...

    def tell_download_stopped(self, title: str, message: str) -> None:
        """A download needs the user."""
        ...
