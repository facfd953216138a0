"""Two servers with the same model, one of which drafts, as one engine to compare with."""

from __future__ import annotations

from collections.abc import Iterator

from app.client.process import EngineProcess
from app.protocol.commands import Generate, ScoreTokens
from app.protocol.events import GenerationFinished, GenerationStarted, PromptProgressed, Round, TokensScored


class TwoServers:
    """Asks ``without`` what is to be answered without a draft, and ``drafting`` all else."""

    def __init__(self, drafting: EngineProcess, without: EngineProcess) -> None:
        self._drafting = drafting
        self._without = without

    def generate(
        self, command: Generate
    ) -> Iterator[GenerationStarted | PromptProgressed | Round | GenerationFinished]:
        """As `EngineProcess.generate`."""
        if command.draft_length == 0:
            return self._without.generate(command)
        return self._drafting.generate(command)

    def score_tokens(self, command: ScoreTokens) -> TokensScored:
        """Raises `KnownError`: servers have no tokens to score."""
        return self._drafting.score_tokens(command)
