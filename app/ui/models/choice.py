"""What the Open models dialog begins with and ends with."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.protocol.messages import AcceptRule, LoadSettings, Sampling


@dataclass(frozen=True)
class OpenModelsChoice:
    """A pair and how it is to be used. The defaults are those of the dialog's "Reset to defaults"."""

    target: str = ""
    """Path of the target's file; empty where none is chosen."""
    draft: str | None = None
    load: LoadSettings = field(default_factory=LoadSettings)
    sampling: Sampling = field(default_factory=Sampling)
    seed: int | None = None
    """``None``: another one for each answer."""
    max_tokens: int | None = None
    """``None``: until the answer ends or the context is full."""
    stop: list[str] = field(default_factory=list)
    system_prompt: str = ""
    accept: AcceptRule = "coupled"

    def same_models(self, other: OpenModelsChoice) -> bool:
        """Whether both need the same files loaded in the same way."""
        return (self.target, self.draft, self.load) == (other.target, other.draft, other.load)
