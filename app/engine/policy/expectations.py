"""What is expected of one drafter's tokens in each kind of text."""

from __future__ import annotations

from collections.abc import Mapping

from app.engine.policy.acceptance import STARTING_POINTS, AcceptanceEstimate, AcceptancePrior, MethodChoice
from app.protocol.options import DrafterName, TextKind

Known = Mapping[TextKind, AcceptancePrior]


class Expectations:
    """How often the target accepts the tokens of one drafter: for each kind of text, and for each way to propose."""

    def __init__(self, drafter: DrafterName, start: Known) -> None:
        """``start``: what earlier answers taught."""
        self._start = start
        prior = start.get("prose") or max(start.values(), key=AcceptancePrior.weight, default=AcceptancePrior())
        names = ("ngram",) if drafter == "ngram" else ("coupled", "greedy")
        self._texts: dict[TextKind, dict[str, AcceptanceEstimate]] = {
            "prose": {name: _estimate(name, prior) for name in names}
        }
        """The estimates for each kind of text that has occurred, by the names of the rates in a prior."""
        self._kind: TextKind = "prose"
        self.methods = MethodChoice(prior.greedy_advantage, prior.greedy_advantage_weight)

    def enter(self, kind: TextKind) -> None:
        """Text of this ``kind`` comes next. Of a new one, what is known about it is expected, or what was expected of
        the text before it.
        """
        if kind not in self._texts:
            known = self._start.get(kind, AcceptancePrior()).rates
            before = self._texts[self._kind].items()
            self._texts[kind] = {name: estimate.forked(known.get(name)) for name, estimate in before}
        self._kind = kind

    def __getitem__(self, name: str) -> AcceptanceEstimate:
        """In the text that comes next: ``ngram``, or a way to propose."""
        return self._texts[self._kind][name]

    def in_text(self, kind: TextKind, name: str) -> AcceptanceEstimate:
        """As `__getitem__`, in text of a ``kind`` that has occurred."""
        return self._texts[kind][name]

    def judged(self) -> int:
        """How many tokens were judged in this answer."""
        return sum(estimate.judged for estimates in self._texts.values() for estimate in estimates.values())

    def learned(self) -> dict[TextKind, AcceptancePrior]:
        """For the next answer; what wasn't tried in this one stays as it was."""
        priors = dict(self._start)
        for kind, estimates in self._texts.items():
            known = priors[kind].rates if kind in priors else {}
            rates = {**known, **{name: each.snapshot() for name, each in estimates.items() if each.judged}}
            if rates:
                priors[kind] = AcceptancePrior(rates, self.methods.greedy_advantage, self.methods.weight)
        return priors


def _estimate(name: str, prior: AcceptancePrior) -> AcceptanceEstimate:
    edges, usual, shape = STARTING_POINTS[name]
    return AcceptanceEstimate(edges, prior.rates.get(name, usual), shape)
