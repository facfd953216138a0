"""What an MTP head costs and brings: time to first token with a head ÷ without, and speed-up at several acceptances.

    python -m benchmarks.mtp [--architecture NAME] [--heads N] [--layers N] [--width N] [--tokens N] [--repeat N]
                         [--threads N] [--wrong PERCENT …] [--server FILE] [--pair TARGET HEAD] [--json]

The models are constructed (`tests.support.mtp_models`): layers of random weights, so that the cost is real, and a head
that is right except after a chosen share of the tokens, so that the acceptance is. By default one thread computes, and
processor time is counted, which other processes disturb little. The policy is told that time, too: on the clock, a pass
that others interrupt would seem to take much longer than a draft that is over before they do. ``--threads`` with more
of them counts the time on the clock. What is compared takes turns in one process; figures are medians. With
``--server``, llama.cpp's ``llama-server`` answers the same with the same file: its text and its counters have to be the
same. Models with several ``--heads`` are only compared, and so are those of ``--architecture gemma4``, whose head is a
file of its own, and the EAGLE-3 heads of ``--architecture eagle3``: they are small, so that the figures are of no
interest, but the counters are. ``--pair TARGET HEAD`` compares files that exist.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

from app import system
from app.engine.host.engine import Engine
from app.protocol.commands import Generate, Load
from app.protocol.events import GenerationFinished, Round
from app.protocol.options import DrafterName, DraftLength, HeadChoice, LoadSettings, Sampling
from benchmarks.contestants import Question, Settings, server
from benchmarks.llama_cpp_tools import Tools
from tests.support import gemma4_models
from tests.support.eagle3_models import make_pair as make_random_pair
from tests.support.eagle3_models import make_table_pair
from tests.support.generation import ask, run
from tests.support.head_architectures import HeadArchitecture
from tests.support.mtp_models import cycle, make_random_model, make_table_model

CONTEXT = 8192
ANSWER_TOKENS = 200
DEPTHS: tuple[DraftLength, ...] = (0, 1, 2, 3, 5, "auto")
GEMMA4 = "gemma4"
EAGLE3: DrafterName = "eagle3"
REAL = "A rainbow forms in several steps. First, the light of the sun"
WRONG_PERCENTS = (0, 10, 30, 60)
"""Of the tokens, after which the head is wrong."""
COMPARED_PERCENTS = (0, 10)
"""Those at which llama-server answers, too."""
Clock = Callable[[], float]


def loaded(path: Path, head: HeadChoice, threads: int, beside: Path | None = None) -> Engine:
    """An engine with the model at ``path``, and its head if that is in a file ``beside`` it."""
    engine = Engine()
    settings = LoadSettings(context_length=CONTEXT, threads=threads, chat_cache_mib=0)
    draft = str(beside) if beside and head == "on" else None
    pair = engine.load(Load(request=1, target=str(path), draft=draft, head=head, settings=settings), lambda _: None)
    assert pair.has_head == (head == "on"), pair.head_refused
    return engine


def question(tokens: int, seed: int) -> str:
    """Letters that no other question begins with; each is a token or half of one."""
    letters = random.Random(seed)
    return f"{seed} " + "".join(letters.choices("qxzjQXZJ", k=tokens))


def asked(text: str, length: DraftLength, max_tokens: int, drafter: DrafterName = "mtp") -> Generate:
    """The text continued by the most likely tokens."""
    return ask(
        text, raw=True, max_tokens=max_tokens, draft_length=length, drafter=drafter, sampling=Sampling(temperature=0)
    )


def answered(engine: Engine, text: str, length: DraftLength, max_tokens: int, clock: Clock) -> dict[str, Any]:
    """Seconds to the first token and for each token after it, and the counters."""
    engine.ready()
    begun, first = clock(), 0.0
    for event in engine.generate(asked(text, length, max_tokens)):
        if isinstance(event, Round) and not first:
            first = clock()
        if isinstance(event, GenerationFinished):
            figures = event.figures
    return {
        "first": first - begun,
        "each": (clock() - first) / max(figures.completion_tokens - 1, 1),
        "tested": figures.draft.tested,
        "accepted": figures.draft.accepted,
        "tokens": engine._sequence.tokens,
        "prompt": figures.prompt_tokens,
    }


def first_token(path: Path, tokens: int, repeat: int, threads: int, clock: Clock) -> dict[str, float]:
    """Medians of the time to the first token with and without a head, and their ratio."""
    engines = {"with": loaded(path, "on", threads), "without": loaded(path, "off", threads)}
    runs: dict[str, list[float]] = {name: [] for name in engines}
    for number in range(repeat + 1):
        for name in sorted(engines, reverse=bool(number % 2)):
            told = answered(engines[name], question(tokens, number), 0, 2, clock)
            if number:
                runs[name].append(told["first"])
    for engine in engines.values():
        engine.unload()
    medians = {name: statistics.median(seconds) for name, seconds in runs.items()}
    return {**medians, "ratio": medians["with"] / medians["without"], "prompt": told["prompt"]}


def speeds(path: Path, repeat: int, threads: int, clock: Clock) -> dict[str, dict[str, float]]:
    """Speed-up over decoding without a draft, and acceptance, for each draft length."""
    engine = loaded(path, "on", threads)
    runs: dict[str, list[dict[str, Any]]] = {str(length): [] for length in DEPTHS}
    for number in range(repeat + 1):
        for length in DEPTHS:
            told = answered(engine, question(20, 1), length, ANSWER_TOKENS, clock)
            if number:
                runs[str(length)].append(told)
    engine.unload()
    each = {name: statistics.median(told["each"] for told in own) for name, own in runs.items()}
    assert len({tuple(told["tokens"]) for own in runs.values() for told in own}) == 1, "the texts differ"
    return {
        name: {
            "speedup": each["0"] / each[name],
            "acceptance": own[-1]["accepted"] / own[-1]["tested"] if own[-1]["tested"] else 0.0,
        }
        for name, own in runs.items()
    }


def compared(
    program: Path,
    path: Path,
    repeat: int,
    threads: int,
    beside: Path | None = None,
    drafter: DrafterName = "mtp",
    tokens: int = ANSWER_TOKENS,
    text: str = "",
) -> list[dict[str, Any]]:
    """The same answer by llama-server at fixed depths: whether text and counters are the same, and the speeds."""
    results = []
    programs = Tools(program, Path(), "cpu")
    engine = loaded(path, "on", threads, beside)
    text = text or question(20, 1)
    for depth in (1, 3, 5):
        settings = Settings(path, path, depth, threads, CONTEXT, tokens)
        options = ["--spec-type", f"draft-{drafter}", "--spec-draft-n-max", str(depth), "--spec-draft-p-min", "0"]
        options += ["-md", str(beside)] if beside else []
        command = asked(text, depth, tokens, drafter)
        run(engine, command)
        prompt = engine._sequence.tokens[: engine._sequence.prompt_length]
        with server(programs, settings, options) as other:
            pairs = [(run(engine, command), other(Question("", text, text, prompt))) for _ in range(repeat + 1)]
        ours, theirs = pairs[0]  # later, llama-server reads the end of its cached prompt with another hidden state
        draft = ours.finished.figures.draft
        mine, others = (
            statistics.median(speed)
            for speed in (
                [one.finished.figures.decode_tokens_per_second or 0.0 for one, _ in pairs[1:]],
                [one.speed or 0.0 for _, one in pairs[1:]],
            )
        )
        results.append(
            {
                "depth": depth,
                "same_text": ours.text.rstrip("\ufffd") == theirs.text.rstrip("\ufffd"),  # half a character at the end
                "ours": (draft.tested, draft.accepted),
                "theirs": (theirs.drafted, theirs.accepted),
                "speed": mine / others if others else 0.0,
            }
        )
    engine.unload()
    return results


# ---------------------------------------------------------------- all of it


def compared_with_assistants(options: argparse.Namespace) -> dict[str, Any]:
    """Gemma 4's kinds with assistants that are always, mostly and sometimes right."""
    result: dict[str, Any] = {"server": []}
    wrong = random.Random(1).sample(list(cycle()), 38)
    with tempfile.TemporaryDirectory() as name, patch.dict(os.environ, {system.HOME_VARIABLE: name}):
        target, head = Path(name) / "target.gguf", Path(name) / "mtp.gguf"
        for kind in gemma4_models.KINDS:
            for share in ((), wrong, None):
                if share is None:
                    gemma4_models.make_gemma4(target, kind, context_length=CONTEXT, seed=1)
                    gemma4_models.make_assistant(head, kind, seed=1)
                else:
                    gemma4_models.make_table_gemma4(target, kind, context_length=CONTEXT)
                    gemma4_models.make_table_assistant(head, kind, share)
                result["server"] += compared(options.server, target, options.repeat, options.threads, head)
    return result


def compared_with_eagle3(options: argparse.Namespace) -> dict[str, Any]:
    """EAGLE-3 heads that are always, mostly and sometimes right, of several kinds; or the given pair."""
    result: dict[str, Any] = {"server": []}
    if options.pair:
        with tempfile.TemporaryDirectory() as name, patch.dict(os.environ, {system.HOME_VARIABLE: name}):
            target, head = options.pair
            result["server"] += compared(
                options.server, target, options.repeat, options.threads, head, EAGLE3, text=REAL
            )
        return result
    wrong = random.Random(1).sample(list(cycle()), 38)
    kinds: list[tuple[Callable[..., tuple[Path, Path]], dict[str, Any]]] = [
        *((make_table_pair, own) for own in ({}, {"wrong_after": wrong}, {"own": ()}, {"knows": range(0, 384, 2)})),
        *((make_random_pair, own) for own in ({}, {"knows": range(0, 384, 2)}, {"architecture": "qwen35"})),
    ]
    for make, own in kinds:
        with tempfile.TemporaryDirectory() as name, patch.dict(os.environ, {system.HOME_VARIABLE: name}):
            target, head = make(Path(name), **own)
            result["server"] += compared(options.server, target, options.repeat, options.threads, head, EAGLE3)
    return result


def compared_with_chains(options: argparse.Namespace) -> dict[str, Any]:
    """Models with several heads that are always, mostly and sometimes right."""
    result: dict[str, Any] = {"server": []}
    shares = [[random.Random(head).sample(list(cycle()), 38) for head in range(options.heads)], None]
    with tempfile.TemporaryDirectory() as name, patch.dict(os.environ, {system.HOME_VARIABLE: name}):
        path = Path(name) / "chain.gguf"
        for wrong in ([()] * options.heads, *shares):
            if wrong is None:
                make_random_model(
                    path, options.architecture, heads=options.heads, head_writes=1.0, context_length=CONTEXT, seed=3
                )
            else:
                make_table_model(path, options.architecture, *wrong, context_length=CONTEXT)
            result["server"] += compared(options.server, path, options.repeat, options.threads)
    return result


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Everything, in models of one shape."""
    if options.architecture == EAGLE3 or options.pair:
        return compared_with_eagle3(options)
    if options.architecture == GEMMA4:
        return compared_with_assistants(options)
    if options.heads > 1:
        return compared_with_chains(options)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    shape = {"layers": options.layers + 1, "width": options.width, "feed_forward": 11 * options.width // 4}
    text = list(cycle())
    result: dict[str, Any] = {"speeds": {}}
    with tempfile.TemporaryDirectory() as name, patch.dict(os.environ, {system.HOME_VARIABLE: name}):
        for percent in options.wrong:
            wrong = random.Random(1).sample(text, round(percent * len(text) / 100))
            path = Path(name) / f"{percent}.gguf"
            make_table_model(
                path, options.architecture, wrong, unused=options.unused, context_length=CONTEXT, weights="F16", **shape
            )
            with patch.object(time, "perf_counter", clock):
                if "first" not in result:
                    result["first"] = first_token(path, options.tokens, options.repeat, options.threads, clock)
                result["speeds"][percent] = speeds(path, options.repeat, options.threads, clock)
            if options.server and percent in COMPARED_PERCENTS:
                result.setdefault("server", []).extend(compared(options.server, path, options.repeat, options.threads))
            path.unlink()
            print(f"{percent}% wrong: {json.dumps(result)}", file=sys.stderr, flush=True)  # in case it is cut off
    return result


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = _own_figures(result) if "first" in result else []
    for one in result.get("server", []):
        same = "the same text" if one["same_text"] else "ANOTHER TEXT"
        counters = "tested and accepted {} {}, llama-server {} {}".format(*one["ours"], *one["theirs"])
        lines.append(f"depth {one['depth']}: {same}, {counters}, speed ÷ llama-server's {one['speed']:.2f}")
    return "\n".join(lines)


def _own_figures(result: dict[str, Any]) -> list[str]:
    first = result["first"]
    lines = [
        f"to the first token after a prompt of {first['prompt']:,.0f} tokens: {first['with']:.3f} s with a head, "
        f"{first['without']:.3f} s without: {first['ratio']:.3f}",
        "speed-up (acceptance) by draft length",
        f"{'wrong after':>12}" + "".join(f"{name:>14}" for name in map(str, DEPTHS[1:])),
    ]
    for percent, row in result["speeds"].items():
        cells = (f"{row[str(length)]['speedup']:.2f} ({row[str(length)]['acceptance']:.2f})" for length in DEPTHS[1:])
        lines.append(f"{f'{percent}%':>12}" + "".join(f"{cell:>14}" for cell in cells))
    return lines


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", choices=(*get_args(HeadArchitecture), GEMMA4, EAGLE3), default="qwen35")
    parser.add_argument("--heads", type=int, default=1, help="several can only be compared, with --server")
    parser.add_argument("--layers", type=int, default=32, help="without the head's")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--unused", type=int, default=16_000, help="tokens of the vocabulary that no text has")
    parser.add_argument("--wrong", type=int, nargs="+", default=WRONG_PERCENTS, metavar="PERCENT")
    parser.add_argument("--tokens", type=int, default=1500, help="of the prompt")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--server", type=Path, help="llama-server to compare with")
    parser.add_argument("--pair", type=Path, nargs=2, metavar="FILE", help="a target and the file with its head")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    is_compared = options.architecture in (GEMMA4, EAGLE3) or options.heads > 1 or options.pair
    if is_compared and not options.server:
        parser.error("Gemma 4, EAGLE-3, several heads and a given pair are only compared: --server is missing.")
    result = measure(options)
    print(json.dumps(result) if options.json else table(result))
    return result


if __name__ == "__main__":
    main()
