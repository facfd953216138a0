"""What the Open models dialog begins with and ends with."""

from __future__ import annotations

import re
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
    """``None``: a different seed for each answer."""
    max_tokens: int | None = None
    """``None``: no limit but the end of the answer and the context."""
    stop: list[str] = field(default_factory=list)
    system_prompt: str = ""
    accept: AcceptRule = "coupled"

    def same_models(self, other: OpenModelsChoice) -> bool:
        """Whether both need the same files loaded in the same way."""
        return (self.target, self.draft, self.load) == (other.target, other.draft, other.load)


def stop_strings_from(text: str) -> list[str]:
    r"""One stop string a line; ``\n``, ``\t`` and ``\\`` stand for a line break, a tab and a backslash."""
    return [re.sub(r"\\(.)", _unescaped, line) for line in text.splitlines() if line]


def stop_strings_as_text(stop: list[str]) -> str:
    """The reverse of `stop_strings_from`."""
    escaped = (text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t") for text in stop)
    return "\n".join(escaped)


def _unescaped(escape: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "\\": "\\"}.get(escape[1], escape[0])
