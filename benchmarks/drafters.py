"""Every drafter of a pair: whether the text stays the same, and what each brings. For counters, see `benchmarks.mtp`.

    python -m benchmarks.drafters same [--pairs NAME …] [--seeds N] [--tokens N]
    python -m benchmarks.drafters spec-bench [--per-kind N] [--lengths N …] [--no-servers]
    python -m benchmarks.drafters guide [--quantized q8_0|q4_k_m|q4_0 …] [--per-kind N] [--kinds NAME …] [--lengths N …]

``same``: the same seeds without a draft and with each drafter, behind prompts of 700 tokens, under every accept rule:
``coupled`` and ``exact`` at temperature 0.8, ``rejection`` and ``block`` at 0. The pairs are the starter model, the
guide in Q8_0 with its draft model, and models with random weights and heads (``mtp``, ``eagle3``). Where passes of
different widths give other logits, ``exact`` takes the place of ``coupled``.

``spec-bench``: Spec-Bench's questions, greedily, to the starter model: without a draft, with Auto, each drafter at
fixed lengths, and to llama-server with its settings. ``guide``: the same without llama-server, for the guide at the
cost of a real model (`benchmarks.inflate`), in F16 and quantized.

``--target`` and ``--draft`` name other files; a draft can be a draft model or a head. All take turns, only one computes
at a time, and who begins changes. Ratios are ratios of medians, with the interval of 95 % of pairs drawn again. "The
best single one" is chosen for each question by the other questions, or, in hindsight, by all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from app.models.gguf import read_header
from app.models.heads import has_head
from app.protocol.options import (
    AcceptRule,
    DrafterChoice,
    DrafterName,
    DraftLength,
    HeadChoice,
    Sampling,
)
from benchmarks import real_spec_bench as spec
from benchmarks.copying import copies
from benchmarks.inflate import FOLDER, GUIDE, inflated, quantized
from benchmarks.llama_cpp_tools import tools
from benchmarks.peer import KINDS, wordings
from benchmarks.quantizing import Quantization
from benchmarks.real_bench import real_models
from benchmarks.real_contestants import (
    PAUSE_S,
    Contestant,
    Loaded,
    Ours,
    Request,
    cores,
    engine,
    llama_server,
    prompts_of,
    vocabulary,
)
from benchmarks.real_figures import (
    QUESTIONS,
    Question,
    Ratio,
    as_json,
    first_difference,
    load_questions,
    ratio_of_medians,
    sample,
    show_progress,
)
from tests.support.eagle3_models import make_pair
from tests.support.mtp_models import make_random_model

Result = dict[str, Any]
PLAIN, AUTO = "no draft", "Auto"
RULES: tuple[tuple[AcceptRule, float], ...] = (("coupled", 0.8), ("exact", 0.8), ("rejection", 0.0), ("block", 0.0))
"""With their temperatures."""
PROSE = ("writing", "roleplay", "humanities", "stem", "qa")
"""Of Spec-Bench's kinds."""
SERVERS = {
    "llama-server": [],
    "llama-server ngram-simple": ["--spec-type", "ngram-simple"],
    "llama-server ngram-map-k": ["--spec-type", "ngram-map-k"],
    "llama-server ngram-mod": ["--spec-type", "ngram-mod"],
}
_SPEC_TYPES: dict[DrafterName, str] = {"model": "draft-simple", "mtp": "draft-mtp", "eagle3": "draft-eagle3"}
"""llama-server's names."""
_PROMPTS = 10
_SHOWN = 5
_CONTEXT = 2048


@dataclass(frozen=True)
class Pair:
    """A target and what drafts for it besides n-grams: a draft model, a head in a file of its own, or nothing."""

    name: str
    target: Path
    draft: Path | None = None

    @property
    def head(self) -> HeadChoice:
        """A head of a small model is only used if asked for."""
        return "on" if has_head(read_header(self.draft or self.target)) else "auto"


def drafters_of(loaded: Loaded) -> list[DrafterName]:
    """Those that can be tried with free text."""
    return [name for name in loaded.drafters if name != "grammar"]


def _ours(loaded: Loaded) -> Ours:
    assert isinstance(loaded.contestant, Ours)
    return loaded.contestant


# ---------------------------------------------------------------- the same text


def pairs(options: argparse.Namespace, folder: Path) -> dict[str, Callable[[], Pair]]:
    """The pairs of ``same``; made when they are called."""

    def guide() -> Pair:
        return Pair("guide", quantized(GUIDE[0], folder / "guide-q8_0.gguf", "q8_0"), GUIDE[1])

    def with_mtp() -> Pair:
        return Pair("mtp", make_random_model(folder / "mtp.gguf", "glm4moe", context_length=_CONTEXT, seed=3))

    def with_eagle3() -> Pair:
        return Pair("eagle3", *make_pair(folder))

    def starter() -> Pair:
        return Pair("starter", options.target or real_models()[0], options.draft)

    return {"starter": starter, "guide": guide, "mtp": with_mtp, "eagle3": with_eagle3}


def same(options: argparse.Namespace) -> Result:
    """All pairs, one after the other."""
    with tempfile.TemporaryDirectory() as name:
        known = pairs(options, Path(name))
        result = {}
        for each in options.pairs or known:
            pair = known[each]()
            result[each] = same_of(pair, options)
            print(same_table(each, result[each]), flush=True)
    return result


def same_of(pair: Pair, options: argparse.Namespace) -> Result:
    """The same seeds without a draft and with each drafter of the pair."""
    prompts = prompts_of(pair.target, options.prompt_tokens, range(min(_PROMPTS, options.seeds)), options.questions)
    with engine(pair.target, _CONTEXT, threads=options.own_threads, draft=pair.draft, head=pair.head) as loaded:
        choices: list[DrafterChoice] = [*drafters_of(loaded), "auto"]
        found: Result = {name: {"same": 0, "tested": 0, "accepted": 0, "others": []} for name in choices}
        asked = 0
        until = time.monotonic() + 60 * options.minutes
        while asked < options.seeds and time.monotonic() < until:
            _ask_all(_ours(loaded), choices, _request(asked, prompts, loaded, options), found)
            asked += 1
            show_progress(f"{pair.name}: seed {asked} of {options.seeds}")
    show_progress("")
    return {"exact_unit": loaded.exact_unit, "seeds": asked, "tokens": options.tokens, "drafters": found}


def _request(
    number: int, prompts: Sequence[Request], loaded: Loaded, options: argparse.Namespace
) -> tuple[AcceptRule, Request]:
    """What is asked with this seed; one prompt after the other, so that each is processed once."""
    rule, temperature = RULES[number % len(RULES)]
    prompt = prompts[number * len(prompts) // options.seeds]
    request = replace(prompt, max_tokens=options.tokens, sampling=Sampling(temperature=temperature), seed=number)
    return "exact" if temperature and loaded.exact_unit != 1 else rule, request


def _ask_all(ours: Ours, choices: Sequence[DrafterChoice], asked: tuple[AcceptRule, Request], found: Result) -> None:
    """One seed without a draft and with each drafter."""
    rule, request = asked
    ours = replace(ours, accept=rule)
    plain = replace(ours, drafter="none", draft_length=0).ask(request)
    said = {
        name: replace(ours, drafter=name, draft_length="auto" if name == "auto" else 4).ask(request) for name in choices
    }
    for name, one in said.items():
        difference = first_difference(plain.tokens, one.tokens)
        found[name]["same"] += difference is None
        found[name]["tested"] += one.tested
        found[name]["accepted"] += one.accepted
        if difference is not None:
            where = f"seed {request.seed}, {rule}, temperature {request.sampling.temperature:g}"
            found[name]["others"].append(f"{where}: {difference}")


def same_table(name: str, result: Result) -> str:
    """The result for people."""
    lines = [f"{name}: {result['tokens']} tokens behind each prompt, exact unit {result['exact_unit']}"]
    for drafter, found in result["drafters"].items():
        counts = f"{found['accepted']} of {found['tested']} tested tokens accepted"
        lines.append(f"  {drafter:10} {found['same']} of {result['seeds']} the same; {counts}")
        lines += [f"    {other}" for other in found["others"][:_SHOWN]]
    return "\n".join(lines)


# ---------------------------------------------------------------- against single drafters and llama-server


@contextlib.contextmanager
def contestants(pair: Pair, options: argparse.Namespace) -> Iterator[dict[str, Contestant]]:
    """All of them, loaded at once. Auto shares an engine with decoding without a draft, as in `real_spec_bench`."""
    with ExitStack() as stack:

        def loaded() -> Loaded:
            return stack.enter_context(
                engine(pair.target, options.context, threads=options.own_threads, draft=pair.draft, head=pair.head)
            )

        first, other = _ours(loaded()), loaded()
        second = _ours(other)
        found: dict[str, Contestant] = {PLAIN: first, AUTO: replace(first, drafter="auto", draft_length="auto")}
        for name in drafters_of(other):
            auto: list[DraftLength] = ["auto"] if name == "ngram" else []
            for length in (*options.lengths, *auto):
                found[single(name, length)] = replace(second, drafter=name, draft_length=length)
        for label, drafting in _servers(pair, drafters_of(other), options).items():
            server = llama_server(tools(), pair.target, options.context, cores(), drafting)
            found[label] = stack.enter_context(server).contestant
        yield found


def single(drafter: str, length: DraftLength) -> str:
    """What a drafter alone is called."""
    return f"{drafter} {length}"


def _servers(pair: Pair, drafters: Sequence[DrafterName], options: argparse.Namespace) -> dict[str, list[str]]:
    """llama-server's settings that these files allow."""
    if not options.servers:
        return {}
    found = dict(SERVERS)
    for name in drafters:
        if name in _SPEC_TYPES and pair.draft:
            found[f"llama-server {name}"] = ["-md", str(pair.draft.absolute()), "--spec-type", _SPEC_TYPES[name]]
    return found


def contest(pair: Pair, questions: Sequence[Question], asked: Sequence[Request], options: argparse.Namespace) -> Result:
    """Every question to all, greedily, and what follows."""
    begun = time.monotonic()
    with contestants(pair, options) as sides:
        for side in sides.values():
            side.ask(replace(asked[0], max_tokens=16))
            time.sleep(PAUSE_S)
        runs = spec.measure(sides, questions, asked, temperatures=(0.0,), minutes=options.minutes)
    result = {"pair": pair.name, "minutes": (time.monotonic() - begun) / 60, **conclusions(runs), "runs": runs}
    print("\n".join(contest_lines(pair, result)), flush=True)
    return result


def conclusions(runs: Sequence[spec.Run]) -> Result:
    """Ratios over all questions and by kind, and the counters of each contestant."""
    names = list(dict.fromkeys(run.contestant for run in runs))
    kinds = list(dict.fromkeys(run.kind for run in runs))
    groups: dict[str, list[spec.Run]] = {spec.ALL: list(runs)}
    groups |= {kind: [run for run in runs if run.kind == kind] for kind in kinds}
    if any(run.kind in PROSE for run in runs):
        groups["prose"] = [run for run in runs if run.kind in PROSE]
    singles = [name for name in names if name not in (PLAIN, AUTO) and not name.startswith("llama-server")]
    fixed = [name for name in singles if not name.endswith("auto")]
    ratios = {f"Auto ÷ {name}": _by_group(groups, AUTO, name) for name in names if name != AUTO}
    ratios |= {f"{name} ÷ no draft": _by_group(groups, name, PLAIN) for name in singles}
    ratios["Auto ÷ the best single one"] = {key: against_best(own, fixed, runs) for key, own in groups.items()}
    ratios["Auto ÷ the best single one or no draft"] = {
        key: against_best(own, [PLAIN, *fixed], runs) for key, own in groups.items()
    }
    ratios["Auto ÷ the best single one in hindsight"] = {
        key: against_best(own, fixed, runs, in_hindsight=True) for key, own in groups.items()
    }
    return {
        "kinds": kinds,
        "ratios": ratios,
        "counts": {name: _counts([run for run in runs if run.contestant == name]) for name in names},
        "same": {name: _same(runs, name) for name in (AUTO, *singles)},
    }


def _by_group(groups: dict[str, list[spec.Run]], first: str, second: str) -> dict[str, Any]:
    return {key: spec.ratio(own, first, second) for key, own in groups.items()}


def against_best(
    own: Sequence[spec.Run], candidates: Sequence[str], runs: Sequence[spec.Run], *, in_hindsight: bool = False
) -> Ratio | None:
    """Auto ÷ the candidate that is best on the other questions of ``own``, or on all others if there are none; in
    hindsight, on all of ``own``, which lets the luckiest win.
    """
    speeds = _speeds(runs)
    numbers = {run.number for run in own}
    found = []
    for number in numbers:
        others = numbers if in_hindsight else (numbers - {number}) or (set(speeds) - {number})
        best = max(candidates, key=lambda name: _median([_quotient(speeds[one], name) for one in others]), default=None)
        mine = speeds[number]
        if best is not None and AUTO in mine and best in mine:
            found.append((mine[AUTO], mine[best]))
    return ratio_of_medians([a for a, _ in found], [b for _, b in found])


def _speeds(runs: Sequence[spec.Run]) -> dict[int, dict[str, float]]:
    """By question and contestant, of answers that are long enough."""
    found: dict[int, dict[str, float]] = {}
    for run in runs:
        own = found.setdefault(run.number, {})
        if run.said.speed and run.said.count >= spec.LEAST:
            own[run.contestant] = run.said.speed
    return found


def _quotient(speeds: dict[str, float], name: str) -> float | None:
    return speeds[name] / speeds[PLAIN] if name in speeds and PLAIN in speeds else None


def _median(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else 0.0


def _counts(runs: Sequence[spec.Run]) -> dict[str, float]:
    names = ("count", "drafted", "tested", "accepted", "passes")
    return {name: sum(getattr(run.said, name) for run in runs) for name in names}


def _same(runs: Sequence[spec.Run], name: str) -> tuple[int, int]:
    plain = {run.number: run.said.tokens for run in runs if run.contestant == PLAIN}
    own = [run for run in runs if run.contestant == name]
    return sum(run.said.tokens == plain[run.number] for run in own), len(own)


def contest_lines(pair: Pair, result: Result) -> list[str]:
    """The result for people."""
    drafts = f" with {pair.draft.name}" if pair.draft else ""
    lines = [f"{pair.name}{drafts}: {pair.target.name}, {result['minutes']:.1f} minutes; ratios of medians"]
    for label, by_group in result["ratios"].items():
        known = {kind: by_group[kind] for kind in result["kinds"] if by_group[kind] is not None}
        worst = min(known, key=lambda kind: known[kind].value, default=None)
        lines.append(
            f"  {label:42} {by_group[spec.ALL] or '–'}" + (f"; worst: {worst} {known[worst]}" if worst else "")
        )
        if "prose" in by_group and "ngram" in label:
            lines.append(f"    prose {by_group['prose'] or '–'}")
        if label.startswith("Auto ÷ the best"):
            lines += [f"    {kind:40} {found}" for kind, found in known.items()]
    for name, counts in result["counts"].items():
        share = f"{counts['accepted'] / counts['tested']:.3f}" if counts["tested"] else "–"
        per_pass = f"{1 + counts['accepted'] / counts['passes']:.2f}" if counts["passes"] else "–"
        kept = "same text {} of {}".format(*result["same"][name]) if name in result["same"] else ""
        lines.append(f"  {name:30} accepted ÷ tested {share:>6} of {counts['tested']:6}, {per_pass} a pass  {kept}")
    return lines


def spec_bench(options: argparse.Namespace) -> Result:
    """Spec-Bench's questions to the starter model, or to ``--target``."""
    pair = Pair("starter", options.target or real_models()[0], options.draft)
    known = [one for one in load_questions(options.questions) if not options.kinds or one.kind in options.kinds]
    chosen = sample(known, options.per_kind, options.seed)
    return contest(pair, chosen, spec.requests(pair.target, options, chosen), options)


def guide(options: argparse.Namespace) -> Result:
    """The guide inflated, in F16 and quantized: its own questions, and copies of code with a name changed."""
    result = {}
    forms: list[Quantization | None] = [None, *options.quantized] if options.f16 else list(options.quantized)
    for form in forms:
        target = options.target or inflated(folder=options.folder, quantization=form)
        pair = Pair(f"guide {form or 'f16'}", target, options.draft or GUIDE[1])
        kinds = options.kinds or (*KINDS, "copied name")
        texts = wordings(options.per_kind)
        questions = [
            Question(place * len(kinds) + number, kind, (texts[kind][place],))
            for place in range(options.per_kind)
            for number, kind in enumerate(kinds)
            if kind in texts
        ]
        asked = spec.requests(target, options, questions)
        if "copied name" in kinds:
            more, their = _copied(target, options)
            questions, asked = [*questions, *more], [*asked, *their]
        result[pair.name] = contest(pair, questions, asked, options)
    return result


def _copied(target: Path, options: argparse.Namespace) -> tuple[list[Question], list[Request]]:
    """Prompts with code of which the answer repeats most."""
    found, _ = copies(options.per_kind, "name")
    texts = [one.prompt for one in found]
    questions = [Question(-1 - number, "copied name", (text,)) for number, text in enumerate(texts)]
    return questions, [replace(one, max_tokens=options.max_tokens) for one in _raw(target, texts)]


def _raw(target: Path, texts: Sequence[str]) -> list[Request]:
    with vocabulary(target) as model:
        return [Request(text, model.tokenize(text, special=True, bos=True), 1) for text in texts]


# ---------------------------------------------------------------- the command line


def main(arguments: Sequence[str] | None = None) -> Result:
    """Measure and print; returns the figures."""
    options = _parser().parse_args(arguments)
    result: Result = {"what": options.what, "options": as_json(vars(options))}
    measured = {"same": same, "spec-bench": spec_bench, "guide": guide}
    result["figures"] = measured[options.what](options)
    if options.json:
        options.json.write_text(json.dumps(as_json(result), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--target", type=Path, metavar="FILE")
    common.add_argument("--draft", type=Path, metavar="FILE", help="a draft model or a head")
    common.add_argument("--questions", type=Path, default=QUESTIONS, metavar="FILE", help="Spec-Bench's question.jsonl")
    common.add_argument("--minutes", type=float, default=10_000.0, help="of questions, for each pair")
    common.add_argument("--own-threads", type=int, default=0, help="0: as the engine finds best")
    common.add_argument("--seed", type=int, default=1)
    common.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    kinds = parser.add_subparsers(dest="what", required=True)
    texts = kinds.add_parser("same", parents=[common], help="the same text under every rule")
    texts.add_argument("--pairs", nargs="+", choices=("starter", "guide", "mtp", "eagle3"))
    texts.add_argument("--seeds", type=int, default=200)
    texts.add_argument("--tokens", type=int, default=32, help="of each answer")
    texts.add_argument("--prompt-tokens", type=int, default=700)
    for name in ("spec-bench", "guide"):
        one = kinds.add_parser(name, parents=[common], help="Auto against single drafters")
        one.add_argument("--per-kind", type=int, default=2, help="questions of each kind")
        one.add_argument("--kinds", nargs="+", metavar="KIND", help="only questions of these kinds")
        one.add_argument("--lengths", type=int, nargs="+", default=[3, 5, 8] if name == "guide" else [1, 3, 5])
        one.add_argument("--max-tokens", type=int, default=64, help="of an answer")
        one.add_argument("--context", type=int, default=4096 if name == "spec-bench" else _CONTEXT)
        one.add_argument("--servers", action=argparse.BooleanOptionalAction, default=name == "spec-bench")
    one.add_argument("--quantized", nargs="*", choices=get_args(Quantization), default=[])
    one.add_argument("--f16", action=argparse.BooleanOptionalAction, default=True, help="also as it is")
    one.add_argument("--folder", type=Path, default=FOLDER, help="where inflated models are made")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers end, too
    main()
