"""What the windows "Models" and "Settings" ask of the app around them."""

from __future__ import annotations

from typing import Protocol

from app.models.machine_memory import MachineMemory
from app.settings import Pair


class ModelCommands(Protocol):
    """The app's commands, as far as models go."""

    def machine(self) -> MachineMemory:
        """The memory as it is now; from any thread."""
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

    def show_folders(self) -> None:
        """Show where models are looked for, which the user can change there."""
        ...

    def ask_for_token(self) -> None:
        """Let the user enter the access token."""
        ...

    def tell_downloaded(self, title: str, pair: Pair) -> None:
        """This is complete."""
        ...

    def tell_download_stopped(self, title: str, message: str) -> None:
        """This needs the user."""
        ...
