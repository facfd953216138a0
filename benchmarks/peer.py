"""Slipstream against llama.cpp's own programs: the same files, prompts, draft lengths and threads, in turn.

    python -m benchmarks.peer [--target FILE --draft FILE] [--quantize q8_0|q4_k_m|q4_0] [--questions N]
                                    [--draft-length N] [--threads N] [--llama-draft-threads N] [--json]

Without files it measures the inflated guide (`benchmarks.inflate`). The first call builds llama.cpp's programs
(`benchmarks.llama_cpp_tools`). Each question, a wording the guide was not trained on, goes to all contestants one
after the other, greedily; who begins changes with every question. The figures are ratios: the median over the questions
of the quotient of two speeds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from app.engine.decoding.chat_template import CHATML, ChatTemplate
from app.engine.decoding.prompt import PromptBuilder
from app.engine.llama import backend
from app.engine.llama.model import Model
from app.protocol.commands import Message
from benchmarks.contestants import (
    AUTO,
    FIXED,
    PLAIN,
    SERVER_DEFAULT,
    SERVER_FIXED,
    SERVER_PLAIN,
    SIMPLE,
    Answer,
    Ask,
    Question,
    Settings,
    contestants,
)
from benchmarks.inflate import GUIDE, inflated
from benchmarks.llama_cpp_tools import VERSION, tools
from benchmarks.quantizing import Quantization

sys.path.insert(0, str(Path(__file__).parents[1] / "packaging"))
from guide.corpus import load_corpus

KINDS = ("prose", "code", "json", "list", "table", "story")
RATIOS = [
    (PLAIN, SERVER_PLAIN),
    (FIXED, SERVER_FIXED),
    (FIXED, SIMPLE),
    (AUTO, SERVER_DEFAULT),
    (AUTO, PLAIN),
    (AUTO, FIXED),
    (SERVER_DEFAULT, SERVER_PLAIN),
]
_ALL = "all"


@dataclass(frozen=True)
class Run:
    """One question to one contestant."""

    contestant: str
    question: Question
    answer: Answer


# ---------------------------------------------------------------- questions


def questions(target: Path, context: int, count: int) -> list[Question]:
    """``count`` held-out wordings of each kind, kinds taking turns."""
    texts = wordings(count)
    backend.start()
    model = Model(target, 0, lambda _: True)
    try:
        render = _Renderer(model, context)
        return [render.question(kind, texts[kind][i]) for i in range(count) for kind in KINDS]
    finally:
        model.close()


def wordings(count: int) -> dict[str, list[str]]:
    """``count`` held-out wordings of each kind in a fixed random order; where there are fewer they come again."""
    texts: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for topic in load_corpus():
        if topic.kind in texts and len(topic.turns) == 1:
            texts[topic.kind] += topic.turns[0].held_out
    for held_out in texts.values():
        random.Random(1).shuffle(held_out)
    return {kind: [held_out[i % len(held_out)] for i in range(count)] for kind, held_out in texts.items()}


class _Renderer:
    """Makes prompts of which text and tokens are the same thing to llama.cpp."""

    def __init__(self, model: Model, context: int) -> None:
        self._model = model
        self._builder = PromptBuilder(model, context)
        self._bos = model.special_text("bos")
        self._template = ChatTemplate(model.chat_template() or CHATML, self._bos, model.special_text("eos"))

    def question(self, kind: str, text: str) -> Question:
        message = Message(role="user", content=text)
        tokens = self._builder.chat([message]).tokens
        prompt = self._template.render([message])
        if self._model.tokenize("", special=True, bos=True):
            prompt = prompt.removeprefix(self._bos)
        if self._model.tokenize(prompt, special=True, bos=True) != tokens:
            raise SystemExit(f"The prompt for {text!r} is not the same as text and as tokens.")
        return Question(kind, text, prompt, tokens)


# ---------------------------------------------------------------- measuring


def measure(asks: dict[str, Ask], asked: Sequence[Question]) -> list[Run]:
    """Every question to every contestant, after one each that is not counted."""
    for ask in asks.values():
        ask(asked[0])
    names = list(asks)
    runs = []
    for index, question in enumerate(asked):
        first = index % len(names)
        for name in names[first:] + names[:first]:
            runs.append(Run(name, question, asks[name](question)))
    for name in names:
        drafted = sum(run.answer.drafted for run in runs if run.contestant == name)
        if drafted == 0 and name not in (SERVER_PLAIN, PLAIN, AUTO):
            raise SystemExit(f"{name} did not draft a single token, so there is nothing to compare with.")
    return runs


def summarize(runs: Sequence[Run]) -> dict[str, Any]:
    """Figures of each contestant and the ratios, by kind of text and over all of them."""
    kinds = [_ALL, *dict.fromkeys(run.question.kind for run in runs)]
    names = dict.fromkeys(run.contestant for run in runs)
    return {
        "contestants": {name: {kind: _figures(runs, name, kind) for kind in kinds} for name in names},
        "ratios": {f"{a} ÷ {b}": {kind: _ratio(runs, a, b, kind) for kind in kinds} for a, b in RATIOS},
    }


def _of(runs: Sequence[Run], name: str, kind: str) -> list[Run]:
    return [run for run in runs if run.contestant == name and kind in (_ALL, run.question.kind)]


def _figures(runs: Sequence[Run], name: str, kind: str) -> dict[str, Any]:
    own, plain = _of(runs, name, kind), _of(runs, PLAIN, kind)
    speeds = [run.answer.speed for run in own if run.answer.speed]
    drafted, accepted = sum(run.answer.drafted for run in own), sum(run.answer.accepted for run in own)
    same = sum(a.answer.text.strip() == b.answer.text.strip() for a, b in zip(own, plain, strict=True))
    return {
        "answers": len(own),
        "tokens": sum(run.answer.tokens for run in own),
        "tokens_per_second": statistics.median(speeds) if speeds else None,
        "drafted": drafted,
        "accepted": accepted,
        "acceptance_rate": accepted / drafted if drafted else None,
        "same_text_as_slipstream_plain": same,
    }


def _ratio(runs: Sequence[Run], first: str, second: str, kind: str) -> float | None:
    both = zip(_of(runs, first, kind), _of(runs, second, kind), strict=True)
    speeds = [(a.answer.speed, b.answer.speed) for a, b in both]
    quotients = [a / b for a, b in speeds if a and b]
    return statistics.median(quotients) if quotients else None


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    kinds = list(next(iter(result["ratios"].values())))
    pair = f"{Path(result['target']).name} with {Path(result['draft']).name}"
    lines = [
        f"{pair}, fixed draft length {result['draft_length']}, {result['threads']} threads,"
        f" llama.cpp of llama-cpp-python {result['llama_cpp_python']} ({result['backend']})",
        f"{'tokens/s':52}" + "".join(f"{kind:>8}" for kind in kinds) + "    kept   same text",
    ]
    for name, figures in result["contestants"].items():
        rate, total = figures[_ALL]["acceptance_rate"], figures[_ALL]
        kept = "–" if rate is None else f"{rate:.1%}"
        same = f"{total['same_text_as_slipstream_plain']} of {total['answers']}"
        speeds = "".join(_cell(figures[kind]["tokens_per_second"], 1) for kind in kinds)
        lines.append(f"{name:52}{speeds}{kept:>8}   {same}")
    lines.append("ratios")
    lines += [
        f"{label:52}" + "".join(_cell(ratio[kind], 2) for kind in kinds) for label, ratio in result["ratios"].items()
    ]
    return "\n".join(lines)


def _cell(value: float | None, places: int) -> str:
    return f"{'–':>8}" if value is None else f"{value:8.{places}f}"


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print; returns the figures."""
    parser = argparse.ArgumentParser(description="Slipstream against llama.cpp's own programs")
    parser.add_argument("--target", type=Path, help="the inflated guide where none is given")
    parser.add_argument("--draft", type=Path, default=GUIDE[1])
    parser.add_argument("--quantize", choices=get_args(Quantization), help="of the inflated guide")
    parser.add_argument("--questions", type=int, default=3, help="of each kind of text")
    parser.add_argument("--draft-length", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--llama-draft-threads", type=int, help="llama.cpp's default: as many as --threads")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    target = options.target or inflated(quantization=options.quantize, threads=options.threads)
    shared = (options.draft_length, options.threads, options.context, options.max_tokens, options.llama_draft_threads)
    settings = Settings(target, options.draft, *shared)
    programs = tools()
    with contestants(programs, settings) as asks:
        runs = measure(asks, questions(target, options.context, options.questions))
    result = {
        **{key: str(value) if isinstance(value, Path) else value for key, value in asdict(settings).items()},
        "llama_cpp_python": VERSION,
        "backend": programs.backend,
        **summarize(runs),
        "runs": [
            {"contestant": run.contestant, "kind": run.question.kind, "question": run.question.text}
            | {key: value for key, value in asdict(run.answer).items() if key != "text"}
            for run in runs
        ],
    }
    if not options.json:
        print(table(result))
    print(json.dumps(result, ensure_ascii=False))
    return result


if __name__ == "__main__":
    main()
