"""N-grams on texts that are known: what each way to draft from the context would have saved.

    python -m benchmarks.ngram_replay FILE… [--costs f16|q8_0|q4_k_m|smollm2] [--calibration | --others] [--json]

Files are those of `benchmarks.ngram_texts`. Nothing is decoded: an answer is known, so is what a draft would have been
accepted of, and a pass takes what it was measured to take by the number of its tokens (`COSTS`). So the figures are the
same on every machine and under any load. Ours is the drafter with the policy as in the app; each kind of text begins
with nothing learned. llama.cpp's three follow the rules of its ``common/ngram-map.cpp``, ``ngram-mod.cpp`` and
``speculative.cpp`` (October 2026) with its defaults; passes of more than 17 tokens are extrapolated for them.

``--others``: a second index knows the other texts of the files, as if all chats of a computer were indexed. It drafts
where the chat itself has no match that is nearly as long.
"""

from __future__ import annotations

import argparse
import json
import runpy
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.drafters import Proposal
from app.engine.drafters.ngram import LONGEST_MATCH, NgramDrafter
from app.engine.policy.acceptance import MATCH_EDGES, Priors
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import Costs
from app.engine.policy.policy import Outcome, Situation
from app.protocol.options import Sampling

COSTS: dict[str, dict[int, float]] = {
    "f16": {1: 33.0, 2: 44.1, 3: 45.1, 4: 49.9, 5: 64.6, 6: 54.3, 8: 78.0, 12: 86.1, 16: 97.6},
    "q8_0": {1: 21.8, 2: 46.9, 3: 57.5, 4: 65.7, 5: 69.6, 6: 70.3, 8: 73.4, 12: 93.6, 16: 107.0},
    "q4_k_m": {1: 11.8, 2: 18.8, 3: 23.7, 4: 33.3, 5: 39.2, 6: 45.0, 8: 49.9, 12: 78.2, 16: 68.0},
    "smollm2": {1: 9.9, 2: 18.0, 3: 16.6, 4: 20.0, 5: 25.5, 8: 31.0, 12: 47.0, 17: 65.0},
}
"""Milliseconds of a pass by its tokens: 600 M parameters on two cores, and SmolLM2 in Q4_1."""
_LEAST_OF_OTHERS, _OF_OTHERS = 3, 2
"""The shortest match in other chats, and how many tokens of a match in the chat itself it has to be longer."""
_TASK = Task(sampling=Sampling(), seed=1)


@dataclass(frozen=True)
class Text:
    kind: str
    about: str
    prompt: list[int]
    answer: list[int]


@dataclass
class Tally:
    """What answers took."""

    tokens: int = 0
    passes: int = 0
    tested: int = 0
    accepted: int = 0
    seconds: float = 0.0
    bins: dict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    """By bin of confidence: tokens that were judged, and right ones."""


class Way(Protocol):
    """A way to draft."""

    def begin(self, prompt: list[int]) -> None:
        """An answer to ``prompt`` follows."""

    def draft(self, context: list[int], room: int) -> list[int]:
        """What is tested after ``context``."""

    def judged(self, draft: list[int], truth: list[int]) -> None:
        """``truth``: what was accepted of ``draft``, and the next token."""

    def end(self) -> None: ...


# ---------------------------------------------------------------- ours


class Ours:
    """The drafter and the policy of the app."""

    drafter: Callable[[Callable[[int], bool]], Any] = NgramDrafter

    def __init__(self, costs: Costs, others: Sequence[int] = ()) -> None:
        """``others``: the tokens of other chats."""
        self._costs = costs
        self._drafter, self._others = Ours.drafter(lambda _: False), Ours.drafter(lambda _: False)
        self._knows_others = bool(others)
        self._others.begin(TokenSequence(list(others)), _TASK)
        self._learned: Priors | None = None
        self.bins: dict[int, list[int]] = defaultdict(lambda: [0, 0])

    def begin(self, prompt: list[int]) -> None:
        self._policy = AutoPolicy(self._costs, start=self._learned)
        self._sequence = TokenSequence(list(prompt))
        self._drafter.begin(self._sequence, _TASK)

    def draft(self, context: list[int], room: int) -> list[int]:
        for token in context[len(self._sequence) :]:
            self._sequence.append(token)
        self._drafter.accepted()
        found = self._found_by_both(min(room, self._policy.limit))
        self._situation = Situation(len(context), room, {}, {"ngram": found})
        self._decision = self._policy.decide(self._situation)
        self._found = found
        self._proposal = found.first(self._decision.length) if self._decision.drafter else Proposal()
        return self._proposal.tokens[: self._decision.tested(self._proposal)]

    def _found_by_both(self, count: int) -> Proposal:
        own: Proposal = self._drafter.propose(count)
        if not self._knows_others:
            return own
        other: Proposal = self._others.continue_(self._sequence.tokens[-LONGEST_MATCH:], count)
        certain = other.confidences[0] if other.confidences else 0.0
        if certain < _LEAST_OF_OTHERS or certain - _OF_OTHERS <= (own.confidences[0] if own.confidences else 0.0):
            return own
        return Proposal(other.tokens, confidences=[max(one - _OF_OTHERS, 0.0) for one in other.confidences])

    def judged(self, draft: list[int], truth: list[int]) -> None:
        for token, right, confidence in zip(self._found.tokens, truth, self._found.confidences, strict=False):
            counts = self.bins[bisect_right(MATCH_EDGES, confidence)]
            counts[0] += 1
            counts[1] += token == right
        seconds = self._policy.costs.rounds()[len(draft)]
        if self._found.tokens:
            accepted = len(truth) - 1
            outcome = (self._situation, self._decision, self._proposal, len(draft), accepted, truth[-1])
            self._policy.learn(Outcome(*outcome, 0.0, seconds, 0.0))

    def end(self) -> None:
        self._learned = self._policy.learned().priors


# ---------------------------------------------------------------- llama.cpp's


class Simple:
    """``ngram-simple``: what followed the last time the last ``n`` tokens stood before, if ``n`` tokens did."""

    def __init__(self, n: int = 12, m: int = 48) -> None:
        self._n, self._m = n, m

    def begin(self, prompt: list[int]) -> None:
        """It remembers nothing."""

    def draft(self, context: list[int], room: int) -> list[int]:
        n, known = self._n, len(context) - 1  # the last token isn't in its history
        if known <= n + self._m + 1:
            return []
        place = _last(context[:known], context[-n:], known - n - 1)
        draft = context[place + n : min(place + n + self._m, known)] if place else []
        return draft[:room] if len(draft) >= n else []

    def judged(self, draft: list[int], truth: list[int]) -> None:
        """It learns nothing."""

    def end(self) -> None:
        """It keeps nothing."""


class MapK(Simple):
    """``ngram-map-k``: as ``ngram-simple``, but an n-gram whose last draft was accepted in part drafts no more than
    that."""

    def begin(self, prompt: list[int]) -> None:  # noqa: ARG002
        self._most: dict[tuple[int, ...], int] = {}
        self._key: tuple[int, ...] = ()

    def draft(self, context: list[int], room: int) -> list[int]:
        n, m, known = self._n, self._m, len(context) - 1
        self._key = ()
        if known < 2 * n + m:
            return []
        place = _last(context[:known], context[-n:], known - n - m - 1)
        if not place:
            return []
        self._key = tuple(context[-n:])
        return context[place + n : place + n + min(m, self._most.get(self._key, m), room)]

    def judged(self, draft: list[int], truth: list[int]) -> None:
        if self._key and draft:
            self._most[self._key] = len(truth) - 1


class Mod:
    """``ngram-mod``: a table from the last ``n`` tokens to the next one; a draft of fewer than ``least`` is dropped."""

    def __init__(self, n: int = 24, least: int = 48, most: int = 64) -> None:
        self._n, self._least, self._most = n, least, most
        self._next: dict[tuple[int, ...], int] = {}  # a table of four million entries, which these texts don't fill
        self._low = 0

    def begin(self, prompt: list[int]) -> None:
        self._added = 0
        self._add(prompt)

    def draft(self, context: list[int], room: int) -> list[int]:
        if self._added + 32 < len(context) - 1:
            self._add(context[:-1])
        draft = context[-self._n :]
        for i in range(self._most):
            token = self._next.get(tuple(draft[i : i + self._n]))
            if token is None:
                if i < self._least:
                    return []
                break
            draft.append(token)
        return draft[self._n :][:room]

    def judged(self, draft: list[int], truth: list[int]) -> None:
        if draft:
            self._low = self._low + 1 if (len(truth) - 1) / len(draft) < 0.25 else 0
            if self._low >= 5:
                self._next, self._low, self._added = {}, 0, 0

    def end(self) -> None:
        """It keeps its table."""

    def _add(self, tokens: list[int]) -> None:
        for i in range(self._added, len(tokens) - self._n):
            self._next[tuple(tokens[i : i + self._n])] = tokens[i + self._n]
        self._added = max(len(tokens) - self._n, 0)


def _last(tokens: list[int], gram: list[int], newest: int) -> int:
    """Where ``gram`` begins in ``tokens`` for the last time, not behind ``newest``; 0 if nowhere else."""
    for place in range(newest, 0, -1):
        if tokens[place] == gram[0] and tokens[place : place + len(gram)] == gram:
            return place
    return 0


# ---------------------------------------------------------------- measuring


def seconds_of(width: int, costs: Mapping[int, float]) -> float:
    """Of a pass of ``width`` tokens: straight lines between what was measured, and the line from the first to the last
    beyond."""
    known = sorted(costs)
    place = min(max(bisect_right(known, width), 1), len(known) - 1)
    low, high = (known[0], known[-1]) if width > known[-1] else (known[place - 1], known[place])
    return (costs[low] + (costs[high] - costs[low]) * (width - low) / (high - low)) / 1e3


def replay(text: Text, way: Way, costs: Mapping[int, float], tally: Tally) -> None:
    """Add an answer to ``tally``, without its first token, which comes with the prompt."""
    context, end = [*text.prompt, text.answer[0]], len(text.prompt) + len(text.answer)
    truth = [*text.prompt, *text.answer]
    way.begin(context)
    while len(context) < end:
        here = len(context)
        draft = way.draft(context, end - here - 1)
        accepted = 0
        while accepted < len(draft) and draft[accepted] == truth[here + accepted]:
            accepted += 1
        new = truth[here : here + accepted + 1]
        way.judged(draft, new)
        context += new
        tally.tokens += len(new)
        tally.passes += 1
        tally.tested += len(draft)
        tally.accepted += accepted
        tally.seconds += seconds_of(len(draft) + 1, costs)
    way.end()


def ways(costs: Mapping[int, float]) -> dict[str, Callable[[], Way]]:
    """What is compared."""
    measured = Costs({width: ms / 1e3 for width, ms in costs.items()}, {})
    return {"ours": lambda: Ours(measured), "ngram-simple": Simple, "ngram-mod": Mod, "ngram-map-k": MapK}


def compare(texts: Mapping[str, list[Text]], costs: Mapping[int, float]) -> dict[str, dict[str, dict[str, float]]]:
    """Figures by kind of text and way."""
    result: dict[str, dict[str, dict[str, float]]] = {}
    for kind, own in texts.items():
        result[kind] = {}
        for name, make in ways(costs).items():
            way, ratios, total = make(), list[float](), Tally()
            for text in own:
                tally = Tally()
                replay(text, way, costs, tally)
                ratios.append(tally.tokens * seconds_of(1, costs) / tally.seconds)
                total.tokens, total.passes = total.tokens + tally.tokens, total.passes + tally.passes
                total.tested, total.accepted = total.tested + tally.tested, total.accepted + tally.accepted
                total.seconds += tally.seconds
            result[kind][name] = _figures(total, ratios, costs)
    return result


def _figures(total: Tally, ratios: list[float], costs: Mapping[int, float]) -> dict[str, float]:
    return {
        "tokens": total.tokens,
        "to_plain": total.tokens * seconds_of(1, costs) / total.seconds,
        "worst": min(ratios),
        "tokens_per_pass": total.tokens / total.passes,
        "accepted": total.accepted / total.tested if total.tested else 0.0,
        "tested": total.tested,
    }


def calibration(texts: Mapping[str, list[Text]], costs: Mapping[int, float]) -> dict[str, dict[str, float]]:
    """How many tokens were right, by kind of text and confidence."""
    measured = Costs({width: ms / 1e3 for width, ms in costs.items()}, {})
    result = {}
    for kind, own in texts.items():
        ours = Ours(measured)
        for text in own:
            replay(text, ours, costs, Tally())
        edges = (0.0, *MATCH_EDGES)
        result[kind] = {f"{edges[place]:g}": right / count for place, (count, right) in sorted(ours.bins.items())}
    return result


def with_others(texts: Mapping[str, list[Text]], costs: Mapping[int, float]) -> dict[str, dict[str, float]]:
    """One text in five is answered, without and with all the others before it, but those about the same."""
    measured = Costs({width: ms / 1e3 for width, ms in costs.items()}, {})
    chats = [text for own in texts.values() for text in own]
    asked = chats[::5]
    about = {text.about for text in asked}
    pool = [text for text in chats if text.about not in about]
    known = [token for text in pool for token in (*text.prompt, *text.answer)]
    result: dict[str, dict[str, float]] = {"": {"asked": len(asked), "others": len(pool), "tokens": len(known)}}
    for kind in texts:
        taken = {}
        for name, others in (("alone", ()), ("with others", known)):
            ours, tally = Ours(measured, others), Tally()
            for text in asked:
                if text.kind == kind:
                    replay(text, ours, costs, tally)
            taken[name] = tally.tokens * seconds_of(1, costs) / tally.seconds if tally.tokens else 1.0
        result[kind] = {**taken, "gain": taken["with others"] / taken["alone"]}
    return result


def read(files: Sequence[Path], kinds: Sequence[str] = ()) -> dict[str, list[Text]]:
    """Texts by kind."""
    texts: dict[str, list[Text]] = defaultdict(list)
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            text = Text(**json.loads(line))
            if len(text.answer) > 1 and (not kinds or text.kind in kinds):
                texts[text.kind].append(text)
    return texts


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="N-grams on texts that are known")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--costs", choices=COSTS, default="f16")
    parser.add_argument("--kinds", nargs="+", default=[])
    parser.add_argument("--max-tokens", type=int, help="of an answer")
    parser.add_argument("--calibration", action="store_true", help="how often tokens are right, by confidence")
    parser.add_argument("--others", action="store_true", help="what knowing other chats brings")
    parser.add_argument("--drafter", type=Path, help="a file with another NgramDrafter, such as an earlier one")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    Ours.drafter = _drafter_in(options.drafter) if options.drafter else NgramDrafter
    texts, costs = read(options.files, options.kinds), COSTS[options.costs]
    cut = {
        kind: [Text(t.kind, t.about, t.prompt, t.answer[: options.max_tokens]) for t in texts[kind]] for kind in texts
    }
    measure = calibration if options.calibration else with_others if options.others else compare
    result: dict[str, Any] = measure(cut, costs)
    if not options.json:
        for kind, figures in result.items():
            print(f"{kind:16} " + "   ".join(_cell(name, value) for name, value in figures.items()))
    print(json.dumps(result))
    return result


def _drafter_in(path: Path) -> Callable[[Callable[[int], bool]], Any]:
    drafter: Callable[[Callable[[int], bool]], Any] = runpy.run_path(str(path))["NgramDrafter"]
    return drafter


def _cell(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"{name} {value['to_plain']:.3f} ({value['tokens_per_pass']:.2f} a pass, {value['accepted']:.2f} kept)"
    return f"{name} {value:.3g}"


if __name__ == "__main__":
    main()
