"""A loaded model, and text to ask it about: what this repository says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from app.engine.host.engine import Engine
from app.engine.host.loading import Target
from app.engine.llama.context import Context
from app.protocol.commands import Load
from app.protocol.options import LoadSettings, Sampling
from tests.support.generation import Answer, ask, run

ROOT = Path(__file__).parents[2]
WARM = Sampling(temperature=0.8)
CONTEXT = 8192
PLAIN: dict[str, Any] = {"drafter": "none", "draft_length": 0}
N_GRAMS: dict[str, Any] = {"drafter": "ngram", "draft_length": 3}


@dataclass
class Loaded:
    """An engine with a model."""

    engine: Engine

    @property
    def target(self) -> Target:
        target = self.engine._target
        assert target is not None
        return target

    @property
    def context(self) -> Context:
        return self.target.context

    def tokens(self, text: str) -> list[int]:
        return self.target.model.tokenize(text, special=False, bos=False)

    def text(self, tokens: int, skipped: int = 0) -> str:
        """So many tokens of the documents, behind the first ``skipped`` ones."""
        model, end = self.target.model, skipped + tokens
        ids = self.tokens(documents()[: 8 * end])[skipped:end]
        assert len(ids) == tokens
        return b"".join(map(model.piece, ids)).decode("utf-8", "ignore")

    def question(self, tokens: int) -> str:
        """A message of about so many tokens."""
        return f"{self.text(tokens)}\n\nSay again in your own words what this text says."

    def answer(self, text: str, stop_after: int | None = None, **options: Any) -> Answer:
        """At a temperature of 0.8 and the same seed, unless ``options`` of `ask` say otherwise; Stop is pressed when
        ``stop_after`` rounds have come.
        """
        return run(self.engine, ask(text, **{"sampling": WARM, "max_tokens": 32, **options}), stop_after)


@cache
def documents() -> str:
    """English, with tables, code and many words that come again."""
    paths = [ROOT / "README.md", *sorted((ROOT / "benchmarks" / "notes").glob("*.md"))]
    return "\n\n".join(path.read_text("utf-8") for path in paths)


def load(engine: Engine, path: Path, **settings: Any) -> Loaded:
    """``settings`` are `LoadSettings`."""
    settings.setdefault("context_length", CONTEXT)
    engine.load(Load(request=1, target=str(path), settings=LoadSettings(**settings)), lambda _: None)
    return Loaded(engine)
