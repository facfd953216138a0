"""What `benchmarks.real_bench` measures of Slipstream alone: whether a draft changes a text, and how soon an
answer is quick again after another program has ended.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import msgspec

from app.protocol.events import Round
from app.protocol.options import AcceptRule, DrafterChoice, DraftLength, Sampling
from benchmarks.real_contestants import (
    Contestant,
    Loaded,
    Ours,
    Request,
    Said,
    busy,
    engine,
    prompts_of,
    vocabulary,
)
from benchmarks.real_figures import (
    Difference,
    first_difference,
    seconds_until_back,
    share_of,
    show_progress,
    speeds_over_time,
)

Result = dict[str, Any]
WAYS: dict[str, tuple[DrafterChoice, DraftLength]] = {
    "n-grams of length 3": ("ngram", 3),
    "n-grams, automatic": ("ngram", "auto"),
}
_SHOWN = 10
_PROMPTS = 10
_WIDTH_S = 0.5
_BACK = 0.95
_NEVER = -1000.0


# ---------------------------------------------------------------- the same text


@dataclass(frozen=True)
class Other:
    """An answer that a draft changed."""

    way: str
    seed: int
    prompt: int
    difference: Difference
    texts: tuple[str, str]
    """Without and with a draft, from shortly before the first other character."""


def same(target: Path, options: argparse.Namespace) -> Result:
    """The same seeds with and without n-grams, behind prompts of one length."""
    numbers = range(min(_PROMPTS, options.seeds))
    prompts = prompts_of(target, options.prompt_tokens, numbers, options.questions)
    sampling = Sampling(temperature=options.temperature)
    others: list[Other] = []
    counts = {way: {"tested": 0, "accepted": 0, "tokens": 0, "passes": 0} for way in WAYS}
    with engine(target, options.context, threads=options.own_threads, accept=options.accept) as loaded:
        for number in range(options.seeds):
            place = number * len(prompts) // options.seeds  # one prompt after the other: each is processed once
            request = replace(prompts[place], max_tokens=options.tokens, sampling=sampling, seed=options.seed + number)
            plain = _of(loaded, "none", 0).ask(request)
            for way, (drafter, length) in WAYS.items():
                said = _of(loaded, drafter, length).ask(request)
                _count(counts[way], said)
                if (difference := first_difference(plain.tokens, said.tokens)) is not None:
                    others.append(Other(way, request.seed, place, difference, _around(plain.text, said.text)))
            show_progress(f"seed {number + 1} of {options.seeds}, {len(others)} others")
    show_progress("")
    return {
        "prompt_tokens": [len(one.tokens) for one in prompts],
        "threads": loaded.threads,
        "exact_unit": loaded.exact_unit,
        "same": {way: options.seeds - sum(one.way == way for one in others) for way in WAYS},
        "counts": counts,
        "others": others,
    }


def _of(loaded: Loaded, drafter: DrafterChoice, length: DraftLength) -> Contestant:
    ours = loaded.contestant
    assert isinstance(ours, Ours)
    return replace(ours, drafter=drafter, draft_length=length)


def _count(counts: dict[str, int], said: Said) -> None:
    counts["tested"] += said.tested
    counts["accepted"] += said.accepted
    counts["tokens"] += said.count
    counts["passes"] += said.passes


def _around(plain: str, drafted: str) -> tuple[str, str]:
    place = next(
        (i for i, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b), min(len(plain), len(drafted))
    )
    first = max(place - 25, 0)
    return plain[first : place + 25], drafted[first : place + 25]


def same_table(name: str, result: Result, options: argparse.Namespace) -> str:
    """The result for people."""
    low, high = min(result["prompt_tokens"]), max(result["prompt_tokens"])
    lines = [
        f"{name}: {options.tokens} tokens behind {low} to {high} (prompts: {len(result['prompt_tokens'])}), "
        f"temperature {options.temperature:g}, {options.accept}, {result['threads']} threads, passes over multiples of "
        f"{result['exact_unit']} tokens were found to be the same; with and without a draft:"
    ]
    for way, count in result["same"].items():
        counts = result["counts"][way]
        lines.append(
            f"  {way}: {count} of {options.seeds} the same; {counts['accepted']} of {counts['tested']} tested tokens "
            f"accepted, {counts['passes']} passes for {counts['tokens']} tokens"
        )
    for one in result["others"][:_SHOWN]:
        lines.append(
            f"    seed {one.seed}, prompt {one.prompt}, {one.way}: {one.difference}: {one.texts[0]!r}, {one.texts[1]!r}"
        )
    if len(result["others"]) > _SHOWN:
        lines.append(f"    and {len(result['others']) - _SHOWN} more")
    return "\n".join(lines)


# ---------------------------------------------------------------- another program ends


@dataclass(frozen=True)
class Timed:
    """A long answer: when its rounds ended, in seconds since its first token, their tokens and threads (0: all)."""

    rounds: list[tuple[float, int, int]]
    began: float = 0.0
    """When the other program began."""
    ended: float = 0.0

    @property
    def tokens(self) -> list[tuple[float, int]]:
        return [(time, count) for time, count, _ in self.rounds]


@dataclass(frozen=True)
class Trial:
    """The same answer twice: undisturbed, and beside another program for a while."""

    undisturbed: Timed
    disturbed: Timed
    seconds_until_back: float | None
    """After the other program's end, until the speed is that of the undisturbed answer but for 5 %."""
    seconds_until_settled: float | None
    """The same, but for what the rest of the answer is slower or quicker: a machine has such phases by itself."""


def recover(target: Path, options: argparse.Namespace) -> Result:
    """Some long answers, beside which another program computes for a while."""
    (prompt,) = prompts_of(target, options.prompt_tokens, [0], options.questions)
    request = replace(prompt, sampling=Sampling(temperature=options.temperature), seed=options.seed)
    bias = _ends(target)
    trials = []
    for number in range(options.repeat):
        show_progress(f"answer {number + 1} of {options.repeat}")
        with engine(target, options.context, threads=options.own_threads) as loaded:
            trials.append(_trial(loaded, request, bias, options))
    show_progress("")
    return {"threads": loaded.threads, "trials": trials}


def _trial(loaded: Loaded, request: Request, bias: dict[int, float], options: argparse.Namespace) -> Trial:
    ours = loaded.contestant
    assert isinstance(ours, Ours)
    seconds = options.before + options.beside + options.after
    speed = ours.ask(replace(request, max_tokens=100)).speed or 0.0
    room = options.context - len(request.tokens) - 1
    if speed * seconds > room:
        raise SystemExit(f"The context is too short for {seconds:g} seconds; give more with --context.")
    wanted = replace(request, max_tokens=int(min(speed * seconds * 1.2, room)))
    undisturbed = _watched(ours, wanted, bias, None)
    disturbed = _watched(ours, wanted, bias, options)
    both = disturbed.tokens, undisturbed.tokens
    rest = share_of(*both, disturbed.ended + options.after / 2, disturbed.tokens[-1][0])
    back, settled = (seconds_until_back(*both, disturbed.ended, _BACK * one, _WIDTH_S) for one in (1.0, rest))
    return Trial(undisturbed, disturbed, back, settled)


def _ends(target: Path) -> dict[int, float]:
    """What keeps an answer from ending by itself."""
    with vocabulary(target) as model:
        return {token: _NEVER for token in range(model.vocabulary_size) if model.is_end(token)}


def _watched(ours: Ours, request: Request, bias: dict[int, float], options: argparse.Namespace | None) -> Timed:
    """An answer; with ``options`` beside another program for a while, and no longer than they say."""
    command = msgspec.structs.replace(ours.command(request), logit_bias=bias)
    rounds: list[tuple[float, int, int]] = []
    offset, switched = float("inf"), list[float]()
    is_over = False
    with ExitStack() as others:
        for event in ours.engine.generate(command):
            if not isinstance(event, Round) or not event.tokens:
                continue
            offset = min(offset, time.monotonic() - event.time)  # of the engine's clock
            rounds.append((event.time, event.tokens, event.threads))
            if options is None or is_over:
                continue
            passed = event.time - rounds[0][0]
            if len(switched) == 0 and passed >= options.before:
                others.enter_context(busy(options.busy, options.nice))
                switched.append(time.monotonic() - offset)
            elif len(switched) == 1 and passed >= options.before + options.beside:
                others.close()
                switched.append(time.monotonic() - offset)
            elif passed > options.before + options.beside + options.after:
                ours.engine.cancel()  # for good
                is_over = True
    zero = rounds[0][0]
    began, ended = (one - zero for one in switched) if options else (0.0, 0.0)
    return Timed([(at - zero, count, threads) for at, count, threads in rounds[1:]], began, ended)


def recover_table(name: str, result: Result) -> str:
    """The result for people: one trial in full, and the seconds of all."""
    trial: Trial = result["trials"][0]
    rounds, began, ended = trial.disturbed.rounds, trial.disturbed.began, trial.disturbed.ended
    lines = [f"{name}: tokens per second, ÷ those of the same tokens undisturbed, and threads"]
    for begin, speed, share in speeds_over_time(trial.disturbed.tokens, trial.undisturbed.tokens, _WIDTH_S):
        own = [threads or result["threads"] for at, _, threads in rounds if 0 <= at - begin < _WIDTH_S]
        threads = f"{min(own)} to {max(own)}" if own else ""
        is_beside = began <= begin + _WIDTH_S / 2 < ended
        beside = "  beside another program" if is_beside else ""
        lines.append(f"  {begin:5.1f} s {speed:7.1f} {share:7.2f}  {threads}{beside}")
    for label, which in (("undisturbed", "seconds_until_back"), ("the rest of the answer", "seconds_until_settled")):
        each = ["never" if getattr(one, which) is None else f"{getattr(one, which):.2f} s" for one in result["trials"]]
        lines.append(f"after its end, within 5 % of {label} in {', '.join(each)}")
    return "\n".join(lines)


# ---------------------------------------------------------------- options


def add_same_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--prompt-tokens", type=int, default=700)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--accept", choices=get_args(AcceptRule), default="coupled", help="of all answers")


def add_recover_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt-tokens", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--repeat", type=int, default=3, help="answers, each with an engine of its own")
    parser.add_argument("--before", type=float, default=5.0, metavar="SECONDS", help="alone, at first")
    parser.add_argument("--beside", type=float, default=8.0, metavar="SECONDS", help="beside another program")
    parser.add_argument("--after", type=float, default=10.0, metavar="SECONDS", help="alone again")
    parser.add_argument("--busy", type=int, default=1, help="processes that compute then")
    parser.add_argument("--nice", type=int, default=0, help="of these")
