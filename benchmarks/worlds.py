"""Where `benchmarks.accept_rules` lets its contenders play: a real pair in the real engine, or a made-up pair.

A made-up pair is two tables of logits of known distance; the loop around it is the app's own. Its time is told by a
clock that moves by what a pass costs on a known cost curve, so its figures depend on nothing that runs beside it. A
real pair can be put on such a clock as well.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

import msgspec
import numpy as np

from app.engine.decoding import loop
from app.engine.decoding.drafting import Drafting
from app.engine.decoding.sampling import Floats, distributions
from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.drafters.model import LoadedDraft, ModelDrafter
from app.engine.host import engine as engine_module
from app.engine.host.engine import Engine
from app.engine.policy.acceptance import PairHistory, Priors, history_file
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import CostModel, Costs
from app.protocol.commands import Generate, Load, Message
from app.protocol.options import MAX_DRAFT_LENGTH, DraftLength, LoadSettings, Sampling
from benchmarks.contenders import Contender, Counts
from tests.support.generation import run
from tests.support.table_cache import TableCache
from tests.support.vocabulary import FakeVocabulary

CATCH_UP = 0.1
"""Cost of a token the draft model has to take in besides, in tokens it drafts."""


class World(Protocol):
    """A pair that answers."""

    name: str
    runs: int

    def answer(self, contender: Contender | None, sampling: Sampling, length: DraftLength, number: int) -> Counts:
        """Answer ``number`` of `runs` by the rule of ``contender``; ``None`` decodes plain."""


class Clock:
    """Takes the place of the module ``time``; moves only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter


class Machine:
    """Moves a clock by what passes cost on a cost curve."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.clock = Clock()
        self._verify = CostModel(costs, MAX_DRAFT_LENGTH + 1).table()

    def verify(self, width: int) -> None:
        """The target takes ``width`` tokens."""
        self.clock.now += self._verify[min(width, MAX_DRAFT_LENGTH + 1)]

    def draft(self, width: int) -> None:
        """The draft model takes ``width`` tokens."""
        self.clock.now += self.costs.drafts["model"].token * (1.0 + CATCH_UP * (width - 1))

    @contextlib.contextmanager
    def ticking(self) -> Iterator[None]:
        """The loop reads this machine's clock while the block lasts."""
        with patch.object(loop, "time", self.clock), patch.object(engine_module, "time", self.clock):
            yield


# ---------------------------------------------------------------- a real pair


class RealPair:
    """A pair of model files in the real engine. Close it."""

    def __init__(
        self, name: str, pair: Sequence[Path], commands: Sequence[Generate], threads: int, costs: Costs | None = None
    ) -> None:
        """``commands``: one an answer. With ``costs`` passes take what those say, whatever they take here."""
        self.name, self.runs = name, len(commands)
        self._commands = commands
        self._engine = Engine()
        settings = LoadSettings(threads=threads)
        loaded = self._engine.load(
            Load(request=1, target=str(pair[0]), draft=str(pair[1]), settings=settings), lambda _: None
        )
        if loaded.draft_refused:
            raise SystemExit(loaded.draft_refused)
        self._histories: dict[str, PairHistory] = {}
        self._machine = Machine(costs) if costs else None
        if self._machine:
            self._slow_down(self._machine)

    def _slow_down(self, machine: Machine) -> None:
        engine = self._engine
        assert engine._target and engine._draft and engine._costs
        engine._costs.costs = machine.costs
        for context, spend in ((engine._target.context, machine.verify), (engine._draft.context, machine.draft)):
            context.decode = _spending(context.decode, spend)  # type: ignore[method-assign]

    def answer(self, contender: Contender | None, sampling: Sampling, length: DraftLength, number: int) -> Counts:
        """See `World.answer`. Each contender starts with what it learned itself."""
        command = msgspec.structs.replace(self._commands[number], sampling=sampling, drafter="model")
        with contextlib.ExitStack() as stack:
            if self._machine:
                stack.enter_context(self._machine.ticking())
            if contender is None:
                return Counts.of(run(self._engine, msgspec.structs.replace(command, draft_length=0)).rounds)
            stack.enter_context(contender.playing())
            key = f"{contender.name} {sampling.temperature} {sampling.top_k} {length}"
            nothing_known = PairHistory(history_file(None), key)
            assert self._engine._costs
            self._engine._costs.history = self._histories.setdefault(key, nothing_known)
            command = msgspec.structs.replace(
                command, draft_length=length, accept=contender.accept, propose=contender.propose
            )
            return Counts.of(run(self._engine, command).rounds)

    def close(self) -> None:
        """Give up the pair; what a made-up machine taught is not kept."""
        if self._machine:
            self._engine._costs = None
        self._engine.unload()


def _spending(decode: Callable[[Sequence[int], int], Floats], spend: Callable[[int], None]) -> Callable[..., Floats]:
    def decode_and_spend(tokens: Sequence[int], outputs: int) -> Floats:
        spend(len(tokens))
        return decode(tokens, outputs)

    return decode_and_spend


# ---------------------------------------------------------------- a made-up pair

VOCABULARY, CONTEXTS = 1024, 1024


@dataclass(frozen=True)
class Divergence:
    """How a draft's logits differ from the target's: scaled by ``scale``, blurred by ``noise`` of their spread."""

    name: str
    noise: float
    scale: float = 1.0


DIVERGENCES = (
    Divergence("near", 0.12),
    Divergence("fair", 0.35),
    Divergence("far", 0.8),
    Divergence("unsure", 0.2, 0.6),
    Divergence("too sure", 0.2, 1.7),
)


class Table(TableCache):
    """A KV cache whose logits come from a table: the last token and its place choose the row."""

    chunk = 1 << 30

    def __init__(self, rows: Floats, spend: Callable[[int], None]) -> None:
        super().__init__(length=1 << 30, branches=0)
        self._rows = rows
        self._spend = spend

    def decode(self, tokens: Sequence[int], outputs: int) -> Floats:
        places = [(7919 * place + 31 * token) % CONTEXTS for place, token in enumerate(tokens, start=len(self.tokens))]
        self.tokens += tokens
        self._spend(len(tokens))
        return self._rows[places[len(places) - outputs :]]


class _OneChat:
    """Nothing was processed yet, and no other chat comes."""

    def __init__(self, cache: Table) -> None:
        self._cache = cache

    def usable(self, tokens: Sequence[int]) -> int:  # noqa: ARG002
        return len(self._cache.tokens)

    def begin(self, tokens: Sequence[int], *, private: bool = False) -> int:  # noqa: ARG002  # noqa: ARG002
        return len(self._cache.tokens)

    def processed(self, count: int, seconds: float) -> None:
        pass


class _Letters(FakeVocabulary):
    """A vocabulary in which nothing ends."""

    def piece(self, token: int) -> bytes:  # noqa: ARG002
        return b"x"


class MadeUpPair:
    """A target of flat and peaked distributions, as text has them, and a draft at a known distance."""

    def __init__(self, divergence: Divergence, curve: str, costs: Costs, runs: int, tokens: int) -> None:
        rng = np.random.default_rng(0)
        spread = np.exp(rng.normal(np.log(3.5), 0.5, (CONTEXTS, 1)))
        logits = spread * rng.standard_normal((CONTEXTS, VOCABULARY))
        blurred = logits + divergence.noise * spread * rng.standard_normal(logits.shape)
        self._rows = logits.astype(np.float32), (divergence.scale * blurred).astype(np.float32)
        self.runs, self._tokens, self._costs = runs, tokens, costs
        self.name = f"made-up pair, draft {divergence.name} (TV {self.distance():.2f} at T 1), {curve}"
        self._priors: dict[str, Priors] = {}

    def distance(self) -> float:
        """Mean total variation distance at temperature 1: what rejection sampling rejects at each place."""
        everything = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
        p, q = (distributions(rows[:256], everything) for rows in self._rows)
        halves = [np.abs(p.dense(i, VOCABULARY) - q.dense(i, VOCABULARY)).sum() / 2 for i in range(256)]
        return float(np.mean(halves))

    def answer(self, contender: Contender | None, sampling: Sampling, length: DraftLength, number: int) -> Counts:
        """See `World.answer`."""
        machine = Machine(self._costs)
        target = Table(self._rows[0], machine.verify)
        prompt_logits = target.decode([number], 1)
        accept = contender.accept if contender else "coupled"
        task = Task(sampling=sampling, seed=number, max_tokens=self._tokens, accept=accept)
        key = f"{contender and contender.name} {sampling.temperature} {sampling.top_k} {length}"
        policy = self._policy(contender, length, key)
        drafting = None
        if policy:
            table = Table(self._rows[1], machine.draft)
            draft = LoadedDraft(table, VOCABULARY, lambda _: False, lambda: False, _OneChat(table))
            drafting = Drafting(policy, [ModelDrafter(draft)])
        with machine.ticking(), contender.playing() if contender else contextlib.nullcontext():
            sequence = TokenSequence(target.tokens)
            decoding = loop.Decoding(target, sequence, _Letters(), drafting, task, 0.0, lambda: False)
            counts = Counts.of(list(decoding.rounds(prompt_logits)))
        if policy:
            self._priors[key] = policy.learned().priors
        return counts

    def _policy(self, contender: Contender | None, length: DraftLength, key: str) -> AutoPolicy | None:
        if contender is None:
            return None
        return AutoPolicy(
            self._costs,
            limit=MAX_DRAFT_LENGTH,
            propose=contender.propose,
            start=self._priors.get(key),
            fixed=None if length == "auto" else length,
        )

    def close(self) -> None:
        """Nothing to give up."""


def chats(questions: Sequence[str], max_tokens: int) -> list[Generate]:
    """One command a question, each with a seed of its own."""
    return [_command(text, seed, max_tokens, raw=False) for seed, text in enumerate(questions, 1)]


def stories(openings: Sequence[str], count: int, max_tokens: int) -> list[Generate]:
    """``count`` commands that go on from ``openings`` in turn, each with a seed of its own."""
    turns = zip(range(1, count + 1), itertools.cycle(openings), strict=False)
    return [_command(text, seed, max_tokens, raw=True) for seed, text in turns]


def _command(text: str, seed: int, max_tokens: int, raw: bool) -> Generate:
    return Generate(request=2, messages=[Message(role="user", content=text)], seed=seed, max_tokens=max_tokens, raw=raw)
