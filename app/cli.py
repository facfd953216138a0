"""The command line: ``slipstream generate``, ``inspect`` and the commands of `app.commands`.

Exit status: 0; 1 for a known error (one sentence on stderr); 2 for wrong usage; 130 after Ctrl+C; 143 after SIGTERM;
129 when the terminal is closed.
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
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from app import __version__
from app.commands.asking import add_attach_option, add_format_options, answer_format, image_at, with_attached
from app.commands.chats import CHATS
from app.commands.compare import compare
from app.commands.models import MODELS, inspecting
from app.commands.options import add_commands, add_model_options, add_sampling_options, command, option
from app.commands.output import tell
from app.commands.remote import add_server_options
from app.commands.self_draft import self_draft
from app.commands.selftest import selftest
from app.commands.serve import serve
from app.commands.session import generate_command, loaded
from app.protocol.commands import Message
from app.protocol.events import GenerationFinished, GenerationStarted, PairLoaded, Piece, Round
from app.protocol.statistics import acceptance_rate, exported, exported_acceptance_by_position, thinking_and_answer
from app.system import Canceled, KnownError
from app.words import visible, visible_json


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line (without the program name); returns the exit status."""
    _speak_utf8()
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    with _ended_in_order() as asked:
        status = _carry_out(command, options)
    return 128 + asked[0] if asked else status


def _carry_out(command: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    try:
        return command(options)
    except KnownError as error:
        tell(str(error))
        return 1
    except (KeyboardInterrupt, Canceled):
        with contextlib.suppress(OSError):  # the terminal may be closed
            print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # keeps Python from complaining when it flushes stdout at exit
        return 0


# ---------------------------------------------------------------- commands


@command(
    "generate",
    "answer one prompt",
    option("--prompt", required=True, metavar="TEXT", help="the prompt; - reads it from standard input"),
    add_attach_option,
    option("--system", metavar="TEXT", help="system prompt"),
    option("--raw", action="store_true", help="pass the prompt on without a chat template"),
    option(
        "--image",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="an image to show to the model before the prompt; give it again for more",
    ),
    add_model_options,
    add_server_options,
    partial(add_sampling_options, seed="random", max_tokens=1024),
    add_format_options,
)
def _generate(options: argparse.Namespace) -> int:
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace") if options.prompt == "-" else options.prompt
    prompt = with_attached(prompt, options.attach)
    system = [Message(role="system", content=options.system)] if options.system else []
    images = tuple(image_at(path) for path in options.image)
    messages = [*system, Message(role="user", content=prompt, images=images)]
    wanted = answer_format(options)
    started, pieces, finished = None, list[Piece](), None
    with loaded(options, watched=not options.json) as (engine, pair):
        command = generate_command(options, pair, messages, raw=options.raw)
        command = msgspec.structs.replace(command, format=wanted)
        for event in engine.generate(command):
            match event:
                case GenerationStarted():
                    started = event
                    tell(*event.notes)
                case Round():
                    if not options.json:
                        _show_pieces(event.pieces, after_thinking=bool(pieces) and pieces[-1].thinking)
                    pieces += event.pieces
                case GenerationFinished():
                    finished = event
        assert started is not None and finished is not None
        tell("The answer isn't valid by the schema." if finished.valid is False else None)
        thinking, text = ("".join(one.text for one in pieces if one.thinking is kind) for kind in (True, False))
        if finished.has_only_thought(thinking, text):
            pieces = [msgspec.structs.replace(piece, thinking=False) for piece in pieces]
            if not options.json:
                _show(thinking)
        if options.json:
            result = _result(pair, started, finished, pieces)
            print(visible_json(json.dumps(result, ensure_ascii=False)))
        else:
            print()
    return 130 if finished.finish_reason == "cancelled" else 0


def _result(
    pair: PairLoaded, started: GenerationStarted, finished: GenerationFinished, pieces: Sequence[Piece]
) -> dict[str, Any]:
    figures, draft = finished.figures, finished.figures.draft
    thinking, answer = thinking_and_answer(figures.kinds)
    return {
        "text": "".join(piece.text for piece in pieces if not piece.thinking),
        "thinking": "".join(piece.text for piece in pieces if piece.thinking),
        "token_ids": [piece.id for piece in pieces if piece.id >= 0],
        "prompt_tokens": figures.prompt_tokens,
        "completion_tokens": figures.completion_tokens,
        "thinking_tokens": figures.thinking_tokens,
        "thinking_s": figures.thinking_seconds,
        "finish_reason": finished.finish_reason,
        "seed": started.seed,
        "notes": started.notes,
        "valid": finished.valid,
        "time_to_first_token_s": figures.time_to_first_token_seconds,
        "decode_tokens_per_second": figures.decode_tokens_per_second,
        "template": started.template,
        "draft_refused": pair.draft_refused,
        "draft_failure": finished.draft_failure,
        "draft": {
            **exported(draft),
            "acceptance_rate_thinking": acceptance_rate(thinking.accepted, thinking.tested),
            "acceptance_rate_answer": acceptance_rate(answer.accepted, answer.tested),
            "accepted_per_position": draft.accepted_per_position,
            "acceptance_by_position": exported_acceptance_by_position(draft),
            "drafters": msgspec.to_builtins(draft.drafters),
            "source": draft.source,
            "estimated_passes": draft.estimated_passes,
        },
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slipstream",
        description="Chat with local language models, made faster by speculative decoding. Without a command, "
        "Slipstream opens its window; given only the name of a .gguf file, it offers to load that "
        "model.",
        epilog="slipstream COMMAND --help shows the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"slipstream {__version__}")
    inspect = inspecting(
        "FILE", "describe a GGUF file, and say whether two files fit as a pair", lambda words: list(map(Path, words))
    )
    add_commands(parser, (_generate, compare, serve, self_draft, inspect, MODELS, CHATS, selftest))
    return parser


# ---------------------------------------------------------------- helpers


@contextlib.contextmanager
def _ended_in_order() -> Iterator[list[int]]:
    """Treat SIGTERM and SIGHUP like Ctrl+C; yields a list that the signal is added to."""
    asked: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):  # shells make background processes ignore it
            raise KeyboardInterrupt
        interrupt(signal.SIGINT, frame)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    wanted = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in wanted:
        signal.signal(number, end)
    try:
        yield asked
    finally:
        for number in wanted:
            signal.signal(number, signal.SIG_DFL)


def _show(text: str) -> None:
    """Print part of an answer: unchanged into files and pipes, made safe for a terminal."""
    print(visible(text) if sys.stdout.isatty() else text, end="", flush=True)


def _show_pieces(pieces: Sequence[Piece], *, after_thinking: bool) -> None:
    for piece in pieces:
        if piece.thinking:
            _show_thinking(piece.text)
        else:
            if after_thinking:
                _show_thinking("\n\n")
            _show(piece.text)
        after_thinking = piece.thinking


def _show_thinking(text: str) -> None:
    """Print thinking, only for people."""
    if sys.stderr.isatty():
        print(visible(text), end="", file=sys.stderr, flush=True)


def _speak_utf8() -> None:
    """Write UTF-8 into files and pipes on every system, and to a terminal whatever it can show."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")
