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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from app import __version__
from app.client.process import EngineProcess
from app.commands.asking import add_attach_option, add_format_options, answer_format, image_at, with_attached
from app.commands.chats import CHATS
from app.commands.compare import compare
from app.commands.models import MODELS, inspecting
from app.commands.options import add_commands, add_model_options, add_sampling_options, command, option
from app.commands.output import tell
from app.commands.remote import add_server_options
from app.commands.selftest import selftest
from app.commands.serve import serve
from app.commands.session import generate_command, loaded
from app.commands.tools import add_tool_options, started_tools
from app.protocol.calls import CallReader
from app.protocol.commands import Generate, Message
from app.protocol.events import GenerationFinished, GenerationStarted, PairLoaded, Piece, Round
from app.protocol.statistics import (
    acceptance_rate,
    exported,
    exported_acceptance_by_position,
    joined,
    thinking_and_answer,
)
from app.protocol.tools import FORMATS, ToolCall
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
    add_tool_options,
)
def _generate(options: argparse.Namespace) -> int:
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace") if options.prompt == "-" else options.prompt
    prompt = with_attached(prompt, options.attach)
    system = [Message(role="system", content=options.system)] if options.system else []
    images = tuple(image_at(path) for path in options.image)
    messages = [*system, Message(role="user", content=prompt, images=images)]
    wanted = answer_format(options)
    with started_tools(options) as tools, loaded(options, watched=not options.json) as (engine, pair):
        command = generate_command(options, pair, messages, raw=options.raw)
        command = msgspec.structs.replace(command, format=wanted, tools=tools.use if tools else None)
        answer = turn = _answered(engine, pair, command, options)
        while tools and turn.calls:
            messages += [turn.message, *tools.carry_out(turn.calls)]
            turn = _answered(engine, pair, msgspec.structs.replace(command, messages=messages), options)
            answer = answer.with_more(turn)
        if options.json:
            calls = {"calls": msgspec.to_builtins(tools.calls)} if tools else {}
            print(visible_json(json.dumps(_result(pair, answer) | calls, ensure_ascii=False)))
        else:
            print()
    return 130 if answer.finished.finish_reason == "cancelled" else 0


@dataclass(frozen=True)
class _Answer:
    started: GenerationStarted
    finished: GenerationFinished
    pieces: list[Piece]
    """Without the text of calls."""
    calls: Sequence[ToolCall]
    """What it ends with."""

    @property
    def message(self) -> Message:
        thinking, text = ("".join(one.text for one in self.pieces if one.thinking is kind) for kind in (True, False))
        tokens = tuple(piece.id for piece in self.pieces if piece.id >= 0) if self.calls else ()
        return Message(role="assistant", content=text, thinking=thinking, tool_calls=tuple(self.calls), tokens=tokens)

    def with_more(self, more: _Answer) -> _Answer:
        """The whole answer, with ``more`` behind the results of its calls."""
        figures = joined(self.finished.figures, more.finished.figures)
        finished = msgspec.structs.replace(more.finished, figures=figures)
        return _Answer(self.started, finished, self.pieces + more.pieces, more.calls)


def _answered(engine: EngineProcess, pair: PairLoaded, command: Generate, options: argparse.Namespace) -> _Answer:
    """What the model writes until it ends or calls tools; shown while it is written."""
    started, finished, pieces, calls = None, None, list[Piece](), list[ToolCall]()
    reader = CallReader(FORMATS[pair.tool_format], command.tools.tools) if command.tools and not pair.remote else None

    def add(new: Sequence[Piece]) -> None:
        if not options.json:
            _show_pieces(new, after_thinking=bool(pieces) and pieces[-1].thinking)
        pieces.extend(new)

    for event in engine.generate(command):
        match event:
            case GenerationStarted():
                started = event
                tell(*event.notes)
            case Round():
                add([_without_calls(piece, reader, calls) for piece in event.pieces])
            case GenerationFinished():
                finished = event
                calls += event.tool_calls
    assert started is not None and finished is not None
    if held := reader.end(cut=finished.finish_reason != "end") if reader else "":
        add([Piece(text=held)])
    tell("The answer isn't valid by the schema." if finished.valid is False else None)
    answer = _Answer(started, finished, pieces, calls if finished.finish_reason == "end" else [])
    if not calls and finished.has_only_thought(answer.message.thinking, answer.message.content):
        pieces[:] = [msgspec.structs.replace(piece, thinking=False) for piece in pieces]
        if not options.json:
            _show(answer.message.content)
    return answer


def _without_calls(piece: Piece, reader: CallReader | None, calls: list[ToolCall]) -> Piece:
    """The text of calls is taken away, and they are added to ``calls``."""
    if reader is None or piece.thinking:
        return piece
    text, found = reader.read(piece.text)
    calls += found
    return msgspec.structs.replace(piece, text=text)


def _result(pair: PairLoaded, answer: _Answer) -> dict[str, Any]:
    started, finished, pieces = answer.started, answer.finished, answer.pieces
    figures, draft = finished.figures, finished.figures.draft
    thinking, text = thinking_and_answer(figures.kinds)
    return {
        "text": answer.message.content,
        "thinking": answer.message.thinking,
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
            "acceptance_rate_answer": acceptance_rate(text.accepted, text.tested),
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
    add_commands(parser, (_generate, compare, serve, inspect, MODELS, CHATS, selftest))
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
