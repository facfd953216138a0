"""The threads of a loaded pair: all its contexts compute with as many as other programs leave free."""

from __future__ import annotations

import time

import msgspec

from app.engine.decoding.drafting import Drafting
from app.engine.host.loading import LoadedModel, Target
from app.engine.host.thread_control import ThreadControl
from app.engine.llama.context import Context
from app.engine.policy.costs import CostModel, Costs
from app.protocol.events import Round
from app.protocol.limits import TARGET_OUTPUTS


class PairThreads:
    """Applies what a `ThreadControl` chooses.

    A projector keeps its own number: fewer don't help (benchmarks/notes/real-models.md).
    """

    def __init__(self, target: Target, draft: LoadedModel | None, costs: Costs) -> None:
        """``costs``: of the pair on a quiet computer, which passes are compared with."""
        self._usual = [(one, one.threads, one.batch_threads) for one in _contexts(target, draft)]
        self._costs = CostModel(costs, TARGET_OUTPUTS)
        self.control = ThreadControl(max(target.context.threads, target.context.batch_threads))

    def after_chunk(self) -> None:
        """A chunk of a prompt was processed."""
        self._use(self.control.processed(time.monotonic()))

    def after_round(self, round_: Round, length: int, drafting: Drafting | None) -> Round:
        """``round_`` behind ``length`` tokens, with the number of its threads if there were fewer than usual."""
        control, self._costs.length = self.control, length
        count, width = control.count if control.is_reduced else 0, min(round_.tested + 1, TARGET_OUTPUTS)
        if not count:
            self._costs.look_far(width, round_.verify_seconds)
        expected = self._costs.verify(width)
        self._use(control.passed(time.monotonic(), round_.verify_seconds, expected))
        if drafting:
            drafting.slowdown = control.slowdown
        return msgspec.structs.replace(round_, threads=count) if count else round_

    def restore(self) -> None:
        """Use all threads, as after loading."""
        self._use(self.control.most)

    def _use(self, count: int) -> None:
        for context, one, batch in self._usual:
            context.use_threads(min(one, count), min(batch, count))


def pair_threads(target: Target, draft: LoadedModel | None, costs: Costs | None) -> PairThreads | None:
    """``None`` if the user has chosen a number, there is one thread only, or the processor computes no layer."""
    settings, context = target.settings, target.context
    is_fixed = settings.threads or settings.batch_threads or max(context.threads, context.batch_threads) == 1
    return None if is_fixed or costs is None or not target.computes_on_cpu else PairThreads(target, draft, costs)


def _contexts(target: Target, draft: LoadedModel | None) -> list[Context]:
    contexts = [target.context]
    if draft:
        contexts.append(draft.context)
    if target.head:
        contexts.append(target.head.cache)
    return contexts
