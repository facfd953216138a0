"""Two servers with the same model, one of which drafts, as one engine to compare with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.client.process import EngineProcess
from app.models.text import printable
from app.protocol.commands import Generate, ScoreTokens
from app.protocol.events import (
    GenerationFinished,
    GenerationStarted,
    PairLoaded,
    PromptProgressed,
    Round,
    TokensScored,
)
from app.protocol.remote import SERVER_NAMES


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


def names(pair: PairLoaded, without: PairLoaded | None = None) -> list[str]:
    """Kinds and versions of the servers for a report, without addresses; ``without``: the second one. Empty if the
    model isn't on a server.
    """
    if pair.remote is None:
        return []
    found = [_name(pair), *([_name(without)] if without is not None else [])]
    if without is not None and without.target.name != pair.target.name:
        found[1] += f", model {printable(without.target.name)}"
    return found


def differences(pair: PairLoaded, without: PairLoaded) -> list[str]:
    """Why the two may not have the same model, in sentences for the user."""
    found = []
    theirs = [_in_quotes(one) for one in (without, pair)]
    if theirs[0] != theirs[1]:
        found.append(f"The models have different names: {theirs[0]} without a draft, {theirs[1]} with a draft.")
    lengths = without.context_length, pair.context_length
    if all(lengths) and lengths[0] != lengths[1]:
        found.append(f"The context lengths differ: {lengths[0]:,} tokens without a draft, {lengths[1]:,} with a draft.")
    return found


def chosen_for_both(chosen: Sequence[str] | None, pair: PairLoaded) -> list[str] | None:
    """`Generate.chosen` for two servers: what was chosen, and what the drafting server told of its own values, so that
    both sample in the same way.
    """
    return None if chosen is None else [*chosen, *(name for name in pair.recommended if name not in chosen)]


def _name(pair: PairLoaded) -> str:
    assert pair.remote is not None
    server = pair.remote.server
    return f"{SERVER_NAMES[server.kind]} {server.version}".strip()


def _in_quotes(pair: PairLoaded) -> str:
    return f"“{printable(pair.target.name, 120)}”"
