"""The input and the result of the Open models dialog."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from app.protocol.limits import HeadChoice
from app.protocol.options import AcceptRule, LoadSettings


@dataclass(frozen=True)
class OpenModelsChoice:
    """A pair and how it is loaded and used. The defaults are those of the dialog's "Reset to defaults"."""

    target: str = ""
    """Path of the target's file; empty if none is chosen."""
    draft: str | None = None
    """A draft model, or a file with the target's MTP head."""
    head: HeadChoice = "auto"
    """Whether to use an MTP head inside the target."""
    template: str = ""
    """The chat template, as in `Load.chat_template`."""
    load: LoadSettings = field(default_factory=LoadSettings)
    accept: AcceptRule = "coupled"

    def same_models(self, other: OpenModelsChoice) -> bool:
        """Whether both need the same files loaded in the same way."""
        return replace(self, accept=other.accept) == other
