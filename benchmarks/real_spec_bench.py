"""Spec-Bench's questions to Slipstream and to llama-server, each with its ways of drafting; see
`benchmarks.real_bench`.

Each question goes to all contestants one after the other, greedily and then, when all questions were asked, at
temperature 1; who begins changes. All are loaded all the time, and only one computes. Answers end where the model ends
them, so speeds count only where both sides of a ratio wrote a few tokens. llama-server's ``ngram-mod`` remembers what
it has written in earlier answers; no question is asked twice at one temperature.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.engine.decoding.prompt import PromptBuilder
from app.protocol.commands import Message
from app.protocol.options import Sampling
from benchmarks.llama_cpp_tools import Tools
from benchmarks.real_contestants import (
    PAUSE_S,
    Contestant,
    Ours,
    Request,
    Said,
    engine,
    llama_server,
    vocabulary,
)
from benchmarks.real_figures import (
    Difference,
    Question,
    Ratio,
    first_difference,
    load_questions,
    median_or_none,
    ratio_of_medians,
    sample,
    show_progress,
)

PLAIN, AUTO, NGRAMS, MODEL = "Slipstream", "Slipstream Auto", "Slipstream n-grams", "Slipstream draft model"
SERVER, SERVER_SIMPLE, SERVER_MOD, SERVER_MODEL = (
    "llama-server",
    "llama-server ngram-simple",
    "llama-server ngram-mod",
    "llama-server draft model",
)
SERVERS = {
    SERVER: [],
    SERVER_SIMPLE: ["--spec-type", "ngram-simple"],
    SERVER_MOD: ["--spec-type", "ngram-mod"],
}
RATIOS = [
    *((AUTO, other) for other in (SERVER, SERVER_SIMPLE, SERVER_MOD, SERVER_MODEL)),
    (AUTO, PLAIN),
    (NGRAMS, PLAIN),
    (MODEL, PLAIN),
    (PLAIN, SERVER),
]
TEMPERATURES = (0.0, 1.0)
ALL = "all"
LEAST = 16
"""Tokens of an answer whose speed counts."""
_SHOWN = 10
Result = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One question to one contestant."""

    contestant: str
    number: int
    kind: str
    temperature: float
    said: Said


# ---------------------------------------------------------------- contestants


@contextlib.contextmanager
def contestants(target: Path, options: argparse.Namespace, programs: Tools) -> Iterator[dict[str, Contestant]]:
    """All of them, loaded at once.

    Auto shares an engine with decoding without a draft, so that both compute with the same memory. What drafts in
    another way has an engine of its own: Auto shall not learn from that.
    """
    with ExitStack() as stack:

        def ours() -> Ours:
            loaded = stack.enter_context(
                engine(target, options.context, threads=options.own_threads, draft=options.draft)
            )
            assert isinstance(loaded.contestant, Ours)
            return loaded.contestant

        def theirs(drafting: Sequence[str]) -> Contestant:
            server = llama_server(programs, target, options.context, options.threads, drafting)
            return stack.enter_context(server).contestant

        first, second = ours(), ours()
        found: dict[str, Contestant] = {
            PLAIN: first,
            AUTO: replace(first, drafter="auto", draft_length="auto"),
            NGRAMS: replace(second, drafter="ngram", draft_length="auto"),
            **{name: theirs(drafting) for name, drafting in SERVERS.items()},
        }
        if options.draft:
            found[MODEL] = replace(second, drafter="model", draft_length="auto")
            found[SERVER_MODEL] = theirs(["-md", str(options.draft.absolute()), "--spec-type", "draft-simple"])
        yield found


def requests(target: Path, options: argparse.Namespace, questions: Sequence[Question]) -> list[Request]:
    """The questions as chats, with the tokens that the target's chat template makes of them."""
    with vocabulary(target) as model:
        prompts = PromptBuilder(model, options.context)
        found = []
        for question in questions:
            tokens = prompts.chat([Message(role="user", content=question.text)]).tokens
            found.append(Request(question.text, tokens, options.max_tokens, seed=options.seed, raw=False))
        return found


# ---------------------------------------------------------------- measuring


def spec_bench(target: Path, options: argparse.Namespace, programs: Tools) -> Result:
    """Ask, and draw conclusions."""
    known = [one for one in load_questions(options.questions) if not options.kinds or one.kind in options.kinds]
    chosen = known if options.full else sample(known, options.per_kind, options.seed)
    if not chosen:
        raise SystemExit("There are no questions of these kinds.")
    warm_up = Question(0, "", ("Name three colors and say one sentence about each.",))
    asked = requests(target, options, [warm_up, *chosen])
    with contestants(target, options, programs) as sides:
        for side in sides.values():
            side.ask(asked[0])
            time.sleep(PAUSE_S)
        runs = measure(sides, chosen, asked[1:])
    return {
        "target": target.name,
        "draft": options.draft.name if options.draft else None,
        "questions": [question.number for question in chosen],
        "max_tokens": options.max_tokens,
        **summarize(runs),
        "runs": runs,
    }


def measure(
    sides: dict[str, Contestant],
    questions: Sequence[Question],
    asked: Sequence[Request],
    temperatures: Sequence[float] = TEMPERATURES,
    minutes: float = math.inf,
) -> list[Run]:
    """Every question to every contestant; after ``minutes`` and Ctrl+C, what there was until then."""
    names, runs, until = list(sides), list[Run](), time.monotonic() + 60 * minutes
    with contextlib.suppress(KeyboardInterrupt):
        for temperature in temperatures:
            for index, (question, request) in enumerate(zip(questions, asked, strict=True)):
                if time.monotonic() > until:
                    break
                first, turn = index % len(names), []
                for name in names[first:] + names[:first]:
                    said = sides[name].ask(replace(request, sampling=Sampling(temperature=temperature)))
                    turn.append(Run(name, question.number, question.kind, temperature, said))
                    time.sleep(PAUSE_S)
                runs += turn
                show_progress(f"question {index + 1} of {len(questions)} at temperature {temperature:g}")
    show_progress("")
    return runs


# ---------------------------------------------------------------- conclusions


def summarize(runs: Sequence[Run]) -> Result:
    """Figures of each contestant, ratios and texts, by kind of question, by temperature and over all."""
    groups: dict[str, Sequence[Run]] = {ALL: runs}
    for temperature in dict.fromkeys(run.temperature for run in runs):
        groups[f"temperature {temperature:g}"] = [run for run in runs if run.temperature == temperature]
    kinds = list(dict.fromkeys(run.kind for run in runs))
    for kind in kinds:
        groups[kind] = [run for run in runs if run.kind == kind]
    names = list(dict.fromkeys(run.contestant for run in runs))
    ratios = {
        f"{a} ÷ {b}": {group: ratio(some, a, b) for group, some in groups.items()}
        for a, b in RATIOS
        if a in names and b in names
    }
    return {
        "speeds": {group: {name: _speed(some, name) for name in names} for group, some in groups.items()},
        "ratios": ratios,
        "worst": {label: _worst(found, kinds) for label, found in ratios.items()},
        "counts": {name: _counts(_of(runs, name)) for name in names},
        "same": {name: _sameness(runs, name) for name in (AUTO, NGRAMS, MODEL) if name in names},
        "same_as_server": _same_as_server(runs),
    }


def _of(runs: Sequence[Run], name: str) -> list[Run]:
    return [run for run in runs if run.contestant == name]


def _speed(runs: Sequence[Run], name: str) -> float | None:
    return median_or_none([run.said.speed for run in _of(runs, name) if run.said.speed and run.said.count >= LEAST])


def ratio(runs: Sequence[Run], first: str, second: str) -> Ratio | None:
    """Of the answers that are long enough on both sides."""
    pairs = [
        (a.said.speed, b.said.speed)
        for a, b in _pairs(runs, first, second)
        if a.said.speed and b.said.speed and min(a.said.count, b.said.count) >= LEAST
    ]
    return ratio_of_medians([a for a, _ in pairs], [b for _, b in pairs])


def _pairs(runs: Sequence[Run], first: str, second: str) -> Iterator[tuple[Run, Run]]:
    others = {(run.number, run.temperature): run for run in _of(runs, second)}
    return ((run, others[run.number, run.temperature]) for run in _of(runs, first))


def _worst(ratios: dict[str, Ratio | None], kinds: Sequence[str]) -> tuple[str, float] | None:
    known = [(kind, found.value) for kind in kinds if (found := ratios[kind]) is not None]
    return min(known, key=lambda one: one[1], default=None)


def _counts(runs: Sequence[Run]) -> Result:
    names = ("count", "drafted", "tested", "accepted", "passes")
    return {"answers": len(runs), **{name: sum(getattr(run.said, name) for run in runs) for name in names}}


@dataclass(frozen=True)
class Other:
    """An answer that a draft changed."""

    number: int
    kind: str
    temperature: float
    difference: Difference


def _sameness(runs: Sequence[Run], name: str) -> Result:
    """How many of our answers with a draft have the tokens of those without."""
    others = []
    for drafted, plain in _pairs(runs, name, PLAIN):
        if (difference := first_difference(plain.said.tokens, drafted.said.tokens)) is not None:
            others.append(Other(drafted.number, drafted.kind, drafted.temperature, difference))
    count = len(_of(runs, name))
    return {"answers": count, "same": count - len(others), "others": others}


def _same_as_server(runs: Sequence[Run]) -> tuple[int, int]:
    """Greedy answers without a draft that llama-server gives as well, and how many there are."""
    pairs = [(a.said.text.strip(), b.said.text.strip()) for a, b in _pairs(runs, PLAIN, SERVER) if not a.temperature]
    return sum(a == b for a, b in pairs), len(pairs)


# ---------------------------------------------------------------- for people


def table(result: Result) -> str:
    """The result for people."""
    draft = f" with {result['draft']}" if result["draft"] else ""
    lines = [f"{result['target']}{draft}, {len(result['questions'])} questions, at most {result['max_tokens']} tokens"]
    lines += _speed_lines(result) + _ratio_lines(result) + _count_lines(result) + _same_lines(result)
    return "\n".join(lines)


def _speed_lines(result: Result) -> list[str]:
    names = list(result["speeds"][ALL])
    short = [
        name.replace("llama-server", "server").replace("Slipstream ", "").replace("draft model", "model")
        for name in names
    ]
    lines = [f"{'tokens/s':18}" + "".join(f"{name:>20}" for name in short)]
    for group, speeds in result["speeds"].items():
        lines.append(f"{group:18}" + "".join(f"{_cell(speeds[name])}" for name in names))
    return lines


def _cell(value: float | None) -> str:
    return f"{'–':>20}" if value is None else f"{value:20.1f}"


def _ratio_lines(result: Result) -> list[str]:
    lines = ["ratios of medians"]
    for label, by_group in result["ratios"].items():
        worst = result["worst"][label]
        of_worst = f"; worst kind: {worst[0]} {by_group[worst[0]]}" if worst else ""
        lines.append(f"  {label:46} {by_group[ALL] or '–'}{of_worst}")
        lines += [f"    {group:44} {found or '–'}" for group, found in by_group.items() if group != ALL]
    return lines


def _count_lines(result: Result) -> list[str]:
    header = ("answers", "tokens", "drafted", "tested", "accepted", "passes", "tokens/pass")
    lines = [f"{'counted':28}" + "".join(f"{name:>12}" for name in header)]
    for name, counts in result["counts"].items():
        values = "".join(f"{value:12,}" for value in counts.values())
        after_first = counts["count"] - counts["answers"]
        lines.append(f"{name:28}{values}{after_first / counts['passes'] if counts['passes'] else 0:12.2f}")
    return lines


def _same_lines(result: Result) -> list[str]:
    lines = ["the same tokens as without a draft"]
    for name, found in result["same"].items():
        lines.append(f"  {name}: {found['same']} of {found['answers']}")
        for one in found["others"][:_SHOWN]:
            lines.append(f"    question {one.number} ({one.kind}), temperature {one.temperature:g}: {one.difference}")
    same, count = result["same_as_server"]
    lines.append(f"greedy texts without a draft that are llama-server's as well: {same} of {count}")
    return lines


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="all 480 questions; takes a night")
    parser.add_argument("--per-kind", type=int, default=2, help="questions of each kind")
    parser.add_argument("--kinds", nargs="+", metavar="KIND", help="only questions of these kinds")
    parser.add_argument("--draft", type=Path, metavar="FILE", help="a draft model for Slipstream and llama-server")
    parser.add_argument("--max-tokens", type=int, default=128, help="of an answer")
