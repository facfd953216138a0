"""``slipstream generate``, ``bench`` and ``inspect``: the same engine without a window.

Exit status: 0, 1 for a known error (one sentence on stderr), 2 for wrong usage, 130 after Ctrl+C.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import msgspec

from app import __version__, paths
from app.bench import Comparison, compare, summarise
from app.engine.protocol import (
    MAX_CONTEXT_LENGTH,
    MAX_DRAFT_LENGTH,
    MAX_THREADS,
    DrafterChoice,
    Generate,
    GenerationFinished,
    GenerationStarted,
    Load,
    LoadProgressed,
    LoadSettings,
    Message,
    PairLoaded,
    Propose,
    Round,
)
from app.errors import Cancelled, KnownError

if TYPE_CHECKING:
    from app.engine.engine import Engine

_DEFAULT_MAX_TOKENS = 1024


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line (without the program name); returns the exit status."""
    _speak_utf8()
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except KnownError as error:
        print(f"slipstream: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, Cancelled):
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains once more when it flushes stdout at exit
        return 0


# ---------------------------------------------------------------- options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slipstream",
        description="Chat with local language models, drafted ahead and verified. Without a command the window opens.",
        epilog="slipstream COMMAND --help shows the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"slipstream {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_generate(commands.add_parser("generate", help="answer one prompt"))
    _add_bench(commands.add_parser("bench", help="measure plain against drafted decoding"))
    _add_inspect(commands.add_parser("inspect", help="say what a GGUF file is, and whether two fit as a pair"))
    return parser


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    models = parser.add_argument_group("models (default: the bundled guide and its draft)")
    models.add_argument("--target", type=Path, metavar="FILE", help="GGUF file of the target model")
    drafts = models.add_mutually_exclusive_group()
    drafts.add_argument("--draft", type=Path, metavar="FILE", help="GGUF file of the draft model")
    drafts.add_argument("--no-draft", action="store_true", help="decode plain, or with --drafter ngram")
    models.add_argument(
        "--threads", type=_whole(0, MAX_THREADS), default=0, metavar="N", help="default: the physical cores"
    )
    models.add_argument(
        "--context", type=_whole(0, MAX_CONTEXT_LENGTH), default=0, metavar="N", help="context length in tokens"
    )
    models.add_argument("--gpu-layers", type=_whole(-1), default=-1, metavar="N", help="layers on the GPU; -1 is all")


def _add_sampling_options(parser: argparse.ArgumentParser) -> None:
    sampling = parser.add_argument_group("sampling (default: what the target's file recommends)")
    sampling.add_argument("--temperature", type=_number(0, 10), metavar="X", help="0 takes the most likely token")
    sampling.add_argument("--top-k", type=_whole(0), metavar="N", help="0 keeps all tokens")
    sampling.add_argument("--top-p", type=_number(1e-6, 1), metavar="X")
    sampling.add_argument("--min-p", type=_number(0, 1), metavar="X")
    sampling.add_argument("--seed", type=_whole(0), metavar="N", help="default: drawn anew each time")
    sampling.add_argument("--max-tokens", type=_whole(1), metavar="N")
    drafting = parser.add_argument_group("drafting")
    drafting.add_argument(
        "--draft-length",
        type=_draft_length,
        default="auto",
        metavar="N",
        help=f"auto (default: as far as it pays), or 0 (off) to {MAX_DRAFT_LENGTH}",
    )
    drafting.add_argument(
        "--drafter",
        choices=get_args(DrafterChoice),
        default="auto",
        help="default, also called chain: n-grams where their match promises more, else the draft model",
    )
    drafting.add_argument(
        "--propose",
        choices=get_args(Propose),
        default="auto",
        help="how the draft model proposes: with the target's noise, its likeliest token, or what is accepted more",
    )
    drafting.add_argument("--accept", choices=["coupled", "rejection"], default="coupled", help="accept rule")


def _add_generate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt", required=True, metavar="TEXT", help="the prompt; - reads it from standard input")
    parser.add_argument("--system", metavar="TEXT", help="system prompt")
    parser.add_argument("--raw", action="store_true", help="feed the prompt without a chat template")
    _add_model_options(parser)
    _add_sampling_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.set_defaults(command=_generate)


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompts", type=Path, metavar="FILE", help="one prompt a line (default: a bundled mix)")
    parser.add_argument("--repeat", type=_whole(1), default=3, metavar="N", help="runs of each prompt (default 3)")
    _add_model_options(parser)
    _add_sampling_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.set_defaults(command=_bench)


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("draft", type=Path, nargs="?", metavar="DRAFT", help="say whether this fits FILE as its draft")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(command=_inspect)


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    def whole(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            limits = f"from {least} to {most}" if most is not None else f"at least {least}"
            raise argparse.ArgumentTypeError(f"{text} must be {limits}")
        return value

    whole.__name__ = "whole number"
    return whole


def _draft_length(text: str) -> int | str:
    return "auto" if text == "auto" else _whole(0, MAX_DRAFT_LENGTH)(text)


_draft_length.__name__ = "draft length"


def _number(least: float, most: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} must be from {least:g} to {most:g}")
        return value

    number.__name__ = "number"
    return number


# ---------------------------------------------------------------- commands


def _generate(options: argparse.Namespace) -> int:
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace") if options.prompt == "-" else options.prompt
    with _loaded(options) as (engine, pair):
        return _answer(options, engine, pair, prompt)


def _answer(options: argparse.Namespace, engine: Engine, pair: PairLoaded, prompt: str) -> int:
    system = [Message(role="system", content=options.system)] if options.system else []
    command = _command(options, pair, [*system, Message(role="user", content=prompt)], raw=options.raw)
    started, text, finished = None, [], None
    for event in engine.generate(command):
        match event:
            case GenerationStarted():
                started = event
            case Round():
                text += [piece.text for piece in event.pieces]
                if not options.json:
                    print("".join(piece.text for piece in event.pieces), end="", flush=True)
            case GenerationFinished():
                finished = event
    assert started is not None and finished is not None
    if options.json:
        print(json.dumps(_result(engine, pair, started, finished, "".join(text)), ensure_ascii=False))
    else:
        print()
    return 130 if finished.finish_reason == "cancelled" else 0


def _result(
    engine: Engine, pair: PairLoaded, started: GenerationStarted, finished: GenerationFinished, text: str
) -> dict[str, Any]:
    figures, draft = finished.figures, finished.figures.draft
    return {
        "text": text,
        "token_ids": engine.token_ids,
        "prompt_tokens": figures.prompt_tokens,
        "completion_tokens": figures.completion_tokens,
        "finish_reason": finished.finish_reason,
        "seed": started.seed,
        "time_to_first_token_s": figures.time_to_first_token_s,
        "decode_tokens_per_second": figures.decode_tokens_per_second,
        "template": started.template,
        "draft_refused": pair.draft_refused,
        "draft": {
            "drafted": draft.drafted,
            "tested": draft.tested,
            "accepted": draft.accepted,
            "acceptance_rate": draft.acceptance_rate,
            "verify_passes": draft.verify_passes,
            "mean_acceptance_length": draft.mean_acceptance_length,
            "accepted_per_position": draft.accepted_per_position,
            "drafters": msgspec.to_builtins(draft.drafters),
        },
    }


def _bench(options: argparse.Namespace) -> int:
    prompts = _read_prompts(options.prompts)
    if options.draft_length == 0 or _drafter(options) == "none":
        _wrong_usage("bench compares plain with drafted decoding, so drafting must not be off")
    with _loaded(options) as (engine, pair):
        if pair.drafting_off:
            raise KnownError(pair.drafting_off)
        return _compare(options, engine, pair, prompts)


def _compare(options: argparse.Namespace, engine: Engine, pair: PairLoaded, prompts: list[str]) -> int:
    commands = [_command(options, pair, [Message(role="user", content=prompt)]) for prompt in prompts]
    runs: list[Comparison] = []
    total = len(commands) * options.repeat
    for run_ in compare(engine, commands, options.repeat):
        runs.append(run_)
        _show_progress(f"{len(runs)} of {total} comparisons")
    _show_progress("")
    summary = summarise(runs)
    if options.json:
        print(json.dumps(summary))
    else:
        _print_summary(summary)
    return 0


def _read_prompts(path: Path | None) -> list[str]:
    path = path or paths.resource("bench", "prompts.txt")
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise KnownError(f"The prompts in {path.name} cannot be read ({error}).") from error
    prompts = [line for line in lines if line]
    if not prompts:
        raise KnownError(f"There are no prompts in {path.name}: write one a line.")
    return prompts


def _print_summary(summary: dict[str, Any]) -> None:
    same, runs = summary["same_text"], summary["runs"]
    print(f"plain         {summary['plain_tokens_per_second']:8.1f} tok/s (median)")
    print(f"with draft    {summary['drafted_tokens_per_second']:8.1f} tok/s (median)")
    print(f"speed-up      {summary['speed_up']:8.2f} × plain (median of the ratios)")
    if summary["acceptance_rate"] is not None:
        print(f"kept          {summary['acceptance_rate']:8.0%} ({summary['accepted']} of {summary['tested']} guesses)")
    print(f"rejected      {summary['rejected']:8d}")
    print(f"same text     {same:8d} of {runs}")
    print(f"total time    {summary['total_s']:8.1f} s, {summary['tokens']} tokens")


def _inspect(options: argparse.Namespace) -> int:
    from app.models import inspect, pairing
    from app.models.gguf import read_header

    header = read_header(options.file)
    if options.draft is None:
        print(_json(inspect.describe(header)) if options.json else inspect.readable(header))
        return 0
    draft = read_header(options.draft)
    verdict = pairing.compare(header, draft)
    if options.json:
        print(_json(inspect.describe_pair(header, draft, verdict)))
    else:
        print(inspect.readable_pair(header, draft, verdict))
    return 0 if verdict.fits else 1


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


# ---------------------------------------------------------------- helpers


@contextlib.contextmanager
def _loaded(options: argparse.Namespace) -> Iterator[tuple[Engine, PairLoaded]]:
    """The engine with its pair. Ctrl+C ends what it does in order: no exception can leave llama.cpp's callbacks."""
    if options.target is None and options.draft is not None:
        _wrong_usage("--draft needs --target")
    from app.engine.engine import Engine

    target, draft = options.target, options.draft
    if target is None:
        target = paths.resource("guide", "guide-target.gguf")
        draft = paths.resource("guide", "guide-draft.gguf")
    if options.no_draft:
        draft = None
    settings = LoadSettings(
        context_length=options.context,
        threads=options.threads,
        target_gpu_layers=options.gpu_layers,
        draft_gpu_layers=options.gpu_layers,
    )
    engine = Engine()
    command = Load(request=0, target=str(target), draft=str(draft) if draft else None, settings=settings)
    previous = signal.signal(signal.SIGINT, lambda *_: engine.cancel())
    try:
        pair = engine.load(command, _show_load_progress)
        _show_progress("")
        if pair.draft_refused:
            print(f"slipstream: The draft is not used. {pair.draft_refused}", file=sys.stderr)
        yield engine, pair
    finally:
        signal.signal(signal.SIGINT, previous)
        engine.unload()  # Metal ends the process with an abort when something is left


def _command(options: argparse.Namespace, pair: PairLoaded, messages: list[Message], raw: bool = False) -> Generate:
    if options.drafter == "model" and pair.draft is None:
        raise KnownError("There is no draft model to draft with. Name one with --draft.")
    names = ("temperature", "top_k", "top_p", "min_p")
    chosen = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return Generate(
        request=1,
        messages=messages,
        sampling=msgspec.structs.replace(pair.sampling, **chosen),
        seed=options.seed,
        max_tokens=options.max_tokens or _DEFAULT_MAX_TOKENS,
        draft_length=options.draft_length,
        drafter=_drafter(options),
        propose=options.propose,
        accept=options.accept,
        raw=raw,
    )


def _drafter(options: argparse.Namespace) -> DrafterChoice:
    """``--no-draft`` alone means plain decoding."""
    choice: DrafterChoice = options.drafter
    return "none" if options.no_draft and choice == "auto" else choice


def _show_load_progress(event: LoadProgressed) -> None:
    _show_progress(f"loading the {event.stage} {event.fraction:.0%}")


def _show_progress(text: str) -> None:
    """One line on a terminal, written over; nothing where stderr is a file or a pipe."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _speak_utf8() -> None:
    """Into files and pipes UTF-8 goes out on every system; a terminal shows what it can."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


def _wrong_usage(message: str) -> NoReturn:
    print(f"slipstream: {message}", file=sys.stderr)
    raise SystemExit(2)
