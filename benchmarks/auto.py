"""Draft length `auto` against plain decoding and against each fixed length, on real pairs.

    python -m benchmarks.auto [--pair guide|inflated|inflated-q8_0|inflated-q4_k_m|inflated-q4_0 …]
                                    [--models FOLDER] [--target FILE --draft FILE] [--sets NAME …] [--questions N]
                                    [--lengths N …] [--repeat N] [--max-tokens N] [--temperature T] [--threads N]
                                    [--cold] [--policy auto|baseline] [--folder FOLDER] [--runs FILE] [--json]

Each question is answered plain, with `auto` and with each fixed length, one after the other by one engine with the same
seed, so the text is the same; who begins changes. All ratios are medians over the questions of the quotient of two
decode speeds. The best fixed length of a set is chosen in hindsight, plain decoding is one of them; where there are
several runs it is chosen on the odd ones and compared on the even ones, with a bootstrap interval of 95 %, or the
luckiest of several lengths would win. Sets where drafts are worth little are only answered plain and with `auto`. The
sets are described in `benchmarks.prompt_sets`. With ``--cold`` each answer of `auto` begins with nothing but the
costs measured at load. ``--runs`` adds the runs of this call to those in a file, and the figures are of all of them: so
a long measurement can be made in portions.

A folder of other models has one file with "target" in its name, and drafts with "draft" in theirs.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import msgspec

from app import system
from app.engine.host import engine as engine_module
from app.engine.host.engine import Engine
from app.protocol.commands import Generate, Load
from app.protocol.events import PairLoaded
from app.protocol.options import DrafterChoice, DraftLength, LoadSettings, Sampling
from app.protocol.statistics import acceptance_rate
from benchmarks.contestants import Answer
from benchmarks.controller import POLICIES
from benchmarks.inflate import FOLDER, GUIDE, inflated, shuffled
from benchmarks.prompt_sets import LENGTHS, Maker, PromptSet
from benchmarks.quantizing import Quantization
from tests.support.generation import run
from tests.support.statistics import interval

PAIRS = ("guide", "inflated", "inflated-q8_0", "inflated-q4_k_m", "inflated-q4_0")
_WARM_UP = 16


@dataclass(frozen=True)
class Pair:
    """Two files and how they are called."""

    name: str
    target: Path
    draft: Path


@dataclass(frozen=True)
class Run:
    """One answer. ``length`` is its draft length, 0 for plain; runs of one ``index`` answer the same question."""

    set: str
    index: int
    length: DraftLength
    answer: Answer


# ---------------------------------------------------------------- pairs


def named_pair(name: str, threads: int, folder: Path = FOLDER) -> Pair:
    """One of `PAIRS`; what is missing is made."""
    if name == "guide":
        return Pair(name, *GUIDE)
    quantization = cast(Quantization | None, name.removeprefix("inflated").removeprefix("-") or None)
    return Pair(name, inflated(folder=folder, quantization=quantization, threads=threads), GUIDE[1])


def pairs_in(folder: Path) -> list[Pair]:
    """The file called target with each one called draft."""
    targets = sorted(folder.glob("*target*.gguf"))
    if len(targets) != 1:
        raise SystemExit(f"{folder} should have one file with 'target' in its name.")
    return [Pair(draft.stem, targets[0], draft) for draft in sorted(folder.glob("*draft*.gguf"))]


# ---------------------------------------------------------------- measuring


class Contest:
    """One engine on one pair."""

    def __init__(self, pair: Pair, threads: int, cold: bool = False, folder: Path = FOLDER) -> None:
        self._pair = pair
        self._cold = cold
        self._folder = folder
        self._settings = LoadSettings(threads=threads)
        self.engine = Engine()
        self.loaded = self.load(pair.draft)

    def load(self, draft: Path) -> PairLoaded:
        """Put ``draft`` in the place of the one before; the target stays loaded."""
        command = Load(request=1, target=str(self._pair.target), draft=str(draft), settings=self._settings)
        loaded = self.engine.load(command, lambda _: None)
        if loaded.draft is None:
            raise SystemExit(loaded.draft_refused)
        return loaded

    def runs(self, prompts: PromptSet, repeat: int, begin: int = 0) -> Iterator[Run]:
        """Answer each question with each draft length, after a short one plain and with `auto` for warming up.

        ``begin`` is the first index.
        """
        self.load(shuffled(self._pair.draft, self._folder) if prompts.stranger else self._pair.draft)
        commands = prompts.commands
        lengths: list[DraftLength] = [0, "auto", *prompts.lengths]
        for length in lengths[:2]:
            self._answer(msgspec.structs.replace(commands[0], max_tokens=_WARM_UP), length, prompts.drafter)
        for index in range(begin, begin + repeat * len(commands)):
            first = index % len(lengths)
            for length in lengths[first:] + lengths[:first]:
                answer = self._answer(commands[index % len(commands)], length, prompts.drafter)
                yield Run(prompts.name, index, length, answer)

    def _answer(self, command: Generate, length: DraftLength, drafter: DrafterChoice) -> Answer:
        """The engine learns from every answer. What fixed lengths teach is forgotten: in the app `auto` has itself.

        When cold, everything is.
        """
        engine = self.engine
        pair = engine._costs
        assert pair
        known = pair.history, pair.costs
        forgets = self._cold or length != "auto"
        if forgets:
            pair.history = copy.copy(pair.history)  # which changes none of its parts
        answer = run(engine, msgspec.structs.replace(command, draft_length=length, drafter=drafter))
        if forgets:
            pair.history, pair.costs = known
        figures = answer.finished.figures
        draft = figures.draft
        tokens, speed = figures.completion_tokens, figures.decode_tokens_per_second
        return Answer(answer.text, tokens, speed, draft.tested, draft.accepted)


# ---------------------------------------------------------------- figures


def fitting(prompts: PromptSet, runs: Sequence[Run]) -> list[Run]:
    """``runs`` of the prompts that were answered as they should be. Raises `SystemExit` where there is none."""
    if not prompts.answers:
        return list(runs)
    plain = {run_.index: run_.answer.text for run_ in runs if run_.length == 0}
    right = {index for index, text in plain.items() if prompts.answers[index % len(prompts.answers)].startswith(text)}
    print(f"{prompts.name}: {len(right)} of {len(plain)} answers are the code", file=sys.stderr)
    if not right:
        raise SystemExit(f"No answer of {prompts.name!r} is as it should be.")
    return [run_ for run_ in runs if run_.index in right]


def summarize(runs: Sequence[Run]) -> dict[str, Any]:
    """The figures of a set, or of several together. Those of an answer of one token have no speed and do not count."""
    answers: dict[DraftLength, dict[tuple[str, int], Answer]] = {}
    for run_ in runs:
        answers.setdefault(run_.length, {})[run_.set, run_.index] = run_.answer
    plain, auto = answers[0], answers["auto"]
    to_plain = {length: _quotient(own, plain) for length, own in answers.items()}
    fixed = {length: ratio for length, ratio in to_plain.items() if length != "auto"}
    best = max(fixed, key=fixed.__getitem__)
    tested, accepted = (sum(getattr(a, name) for a in auto.values()) for name in ("drafted", "accepted"))
    return {
        "answers": len(plain),
        "tokens": sum(answer.tokens for answer in plain.values()),
        "plain_tokens_per_second": statistics.median(answer.speed for answer in plain.values() if answer.speed),
        "to_plain": {str(length): ratio for length, ratio in to_plain.items()},
        "best_fixed": best,
        "auto_to_best_fixed": _quotient(auto, answers[best]),
        "held_out": held_out(answers),
        "auto_acceptance_rate": acceptance_rate(accepted, tested),
        "same_text": sum(own[key].text == plain[key].text for own in answers.values() for key in own) / len(runs),
    }


def held_out(answers: dict[DraftLength, dict[tuple[str, int], Answer]]) -> dict[str, Any] | None:
    """The best fixed length of the odd runs, and `auto` ÷ it on the even ones; ``None`` below two runs of each."""
    odd, even = ([key for key in answers["auto"] if key[1] % 2 == rest] for rest in (1, 0))
    if min(len(odd), len(even)) < 2:
        return None
    plain = answers[0]
    fixed = {length: own for length, own in answers.items() if length != "auto"}
    best = max(fixed, key=lambda length: _quotient({key: fixed[length][key] for key in odd}, plain))
    pairs = [(answers["auto"][key].speed, fixed[best][key].speed) for key in even]
    ratios = [a / b for a, b in pairs if a and b]
    low, high = interval(ratios)
    return {"best_fixed": best, "ratio": statistics.median(ratios), "low": low, "high": high, "runs": len(ratios)}


def _quotient(own: dict[tuple[str, int], Answer], other: dict[tuple[str, int], Answer]) -> float:
    """The median over the questions."""
    speeds = [(own[key].speed, other[key].speed) for key in own]
    return statistics.median(a / b for a, b in speeds if a and b)


def heading(pair: str) -> str:
    """The columns of `line`."""
    fixed = "".join(f"{length:>7}" for length in LENGTHS)
    return f"\n{pair:16} plain tok/s{fixed}   auto   best fixed   auto ÷ best   kept   same text"


def line(name: str, figures: dict[str, Any]) -> str:
    """A set's figures for people: speeds as times plain."""
    ratios = "".join(_cell(figures["to_plain"].get(str(length))) for length in (*LENGTHS, "auto"))
    rate = figures["auto_acceptance_rate"]
    kept = "–" if rate is None else f"{rate:.0%}"
    return (
        f"{name:16} {figures['plain_tokens_per_second']:11.1f}{ratios}{figures['best_fixed']:13}"
        f"{figures['auto_to_best_fixed']:14.3f}{kept:>7}{figures['same_text']:12.0%}{_held_out(figures['held_out'])}"
    )


def _held_out(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    return f"   even runs: {found['ratio']:.3f} ({found['low']:.3f} to {found['high']:.3f}) of {found['best_fixed']}"


def _cell(value: float | None) -> str:
    return f"{'':7}" if value is None else f"{value:7.3f}"


def measure(pair: Pair, options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """The figures of one pair, set after set; last, if there are several, of all that fixed lengths answered, too."""
    contest = Contest(pair, options.threads, options.cold, options.folder)
    sampling = Sampling(temperature=options.temperature)
    sets = Maker(options.questions, options.max_tokens, sampling, contest.loaded.template == "model").sets()
    usual: list[Run] = []
    try:
        for name in options.sets or sets:
            prompts = sets[name]()
            if prompts.lengths and options.lengths:
                prompts = replace(prompts, lengths=tuple(options.lengths))
            earlier = [run_ for run_ in _earlier(options.runs, pair.name) if run_.set == name]
            begin = 1 + max((run_.index for run_ in earlier), default=-1)
            runs = fitting(
                prompts, earlier + _noted(contest.runs(prompts, options.repeat, begin), options.runs, pair.name)
            )
            if prompts.lengths and not prompts.answers:
                usual += runs
            yield name, summarize(runs)
    finally:
        contest.engine.unload()
    if len({run_.set for run_ in usual}) > 1:
        yield "all questions", summarize(usual)


class _Note(msgspec.Struct):
    """A line of the file of ``--runs``."""

    pair: str
    run: Run


def _earlier(path: Path | None, pair: str) -> list[Run]:
    """The runs of ``pair`` that are in the file already."""
    if path is None or not path.is_file():
        return []
    notes = [msgspec.json.decode(text, type=_Note) for text in path.read_text(encoding="utf-8").splitlines()]
    return [note.run for note in notes if note.pair == pair]


def _noted(runs: Iterator[Run], path: Path | None, pair: str) -> list[Run]:
    """``runs``, each question's written to the file when all of its answers are there."""
    done: list[Run] = []
    for _, same in itertools.groupby(runs, key=lambda run_: run_.index):
        done += (together := list(same))
        if path is not None:
            with path.open("ab") as file:
                file.writelines(msgspec.json.encode(_Note(pair, run_)) + b"\n" for run_ in together)
    return done


def measure_all(pairs: Sequence[Pair], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The figures by pair and set, shown as they come."""

    def show(text: str) -> None:
        if not options.json:
            print(text, flush=True)

    show(f"times plain, {options.threads} threads, temperature {options.temperature}")
    result: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        result[pair.name] = {}
        show(heading(pair.name))
        for name, figures in measure(pair, options):
            result[pair.name][name] = figures
            show(line(name, figures))
        worst, ratio = min(((name, f["to_plain"]["auto"]) for name, f in result[pair.name].items()), key=itemgetter(1))
        show(f"worst for auto: {worst}, {ratio:.3f} times plain")
    return result


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print; returns the figures."""
    parser = argparse.ArgumentParser(description="`auto` against plain and fixed draft lengths")
    parser.add_argument("--pair", nargs="+", choices=PAIRS, default=[], help="guide and inflated where none is given")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="other models")
    parser.add_argument("--target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--sets", nargs="+", default=[], help="names of prompt sets; all where none is given")
    parser.add_argument("--questions", type=int, default=2, help="of each set")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[], help="fixed draft lengths; all where none is given"
    )
    parser.add_argument("--cold", action="store_true", help="each answer as if it were the first one")
    parser.add_argument("--policy", choices=POLICIES, default="auto", help="that decides where the length is auto")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of models that are made for it")
    parser.add_argument("--runs", type=Path, metavar="FILE", help="where runs are added to earlier ones")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=120)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    names = options.pair or ([] if options.models or options.target else ["guide", "inflated"])
    pairs = [named_pair(name, options.threads, options.folder) for name in names]
    pairs += pairs_in(options.models) if options.models else []
    if options.target:
        pairs.append(Pair(options.target.stem, options.target, options.draft))
    policy = patch.object(engine_module, "AutoPolicy", POLICIES[options.policy])
    with tempfile.TemporaryDirectory() as home, patch.dict(os.environ, {system.HOME_VARIABLE: home}), policy:
        measured = measure_all(pairs, options)  # with costs of its own, measured now
    settings = ("questions", "repeat", "max_tokens", "temperature", "threads")
    result = {**{name: getattr(options, name) for name in settings}, "pairs": measured}
    print(json.dumps(result, ensure_ascii=False))
    return result


if __name__ == "__main__":
    main()
