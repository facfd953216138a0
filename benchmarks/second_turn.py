"""Time to first token of a long chat: first turn, second turn, after another chat, after a restart, regenerated.

    python -m benchmarks.second_turn [--tokens N] [--parameters N] [--repeat N] [--json]

A pair with random weights and a real model's shape (one key–value head for four heads), so that only the cost is real.
Each round is two chats of its own: one has its first and second turn; the other one's first turn comes in between; the
first one is gone back to, from memory; the answer is written again; the engine is ended and started, and the chat gone
back to from disk. Figures are medians over the rounds; all but the first are also given as shares of the first turn's.
Beside the time stands how many tokens of the prompt had to be processed. The files were written just before, so reading
them does not wait for the disk.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.engine.host.chat_cache import ChatCaches
from app.engine.host.chat_cache_files import ChatCacheFiles
from app.engine.host.engine import Engine
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import GenerationFinished, Round
from app.protocol.options import LoadSettings
from tests.support.gguf_files import CHATML_TEMPLATE, make_model

CONTEXT = 8192
ANSWER_TOKENS = 32
TOKENS_A_WORD = 4.17
"""As the tokenizer of `make_model` spells `WORDS`."""
STEPS = ("first", "second", "back", "regenerate", "restart")
LABELS = {
    "first": "first turn",
    "second": "second turn",
    "back": "after another chat",
    "regenerate": "written again",
    "restart": "after a restart",
}
_WIDTH, _FEED_FORWARD, _HEADS = 1024, 2816, 16
_LAYER_PARAMETERS = 5 * _WIDTH * _WIDTH // 2 + 3 * _WIDTH * _FEED_FORWARD
WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school")


class Chat:
    """One that grows by a question and an answer at a time."""

    def __init__(self, engine: Engine, question: str) -> None:
        self.engine = engine
        self.messages = [Message(role="user", content=question)]

    def answer(self) -> dict[str, float]:
        """Have the last question answered: seconds to the first token, and tokens of the prompt processed."""
        text = ""
        for event in self.engine.generate(
            Generate(request=2, messages=list(self.messages), seed=1, max_tokens=ANSWER_TOKENS)
        ):
            if isinstance(event, Round):
                text += "".join(piece.text for piece in event.pieces)
            if isinstance(event, GenerationFinished):
                figures = event.figures
        assert figures.time_to_first_token_seconds is not None
        self.messages.append(Message(role="assistant", content=text))
        return {
            "seconds": figures.time_to_first_token_seconds,
            "processed": figures.prompt_tokens - figures.cached_tokens,
            "prompt": figures.prompt_tokens,
        }

    def ask(self) -> dict[str, float]:
        self.messages.append(Message(role="user", content="And what follows from that for the next time?"))
        return self.answer()

    def answer_again(self) -> dict[str, float]:
        self.messages.pop()
        return self.answer()


class Bench:
    """A pair, and engines that keep what they can in one folder."""

    def __init__(self, folder: Path, parameters: int) -> None:
        self._folder = folder
        self._target, self._draft = pair_in(folder, layers_of(parameters))

    def new_engine(self) -> Engine:
        engine = Engine(ChatCaches(ChatCacheFiles(self._folder / "kept")))
        settings = LoadSettings(context_length=CONTEXT)
        load = Load(request=1, target=str(self._target), draft=str(self._draft), settings=settings)
        engine.load(load, lambda _: None)
        return engine

    def round(self, tokens: int, seed: int) -> dict[str, dict[str, float]]:
        """The figures of each step."""
        engine = self.new_engine()
        chat = Chat(engine, text(tokens, seed))
        figures = {"first": chat.answer(), "second": chat.ask()}
        Chat(engine, text(tokens, seed + 1)).answer()
        figures["back"] = chat.ask()
        figures["regenerate"] = chat.answer_again()
        engine.unload()
        chat.engine = self.new_engine()
        figures["restart"] = chat.ask()
        chat.engine.forget()
        chat.engine.unload()
        return figures


def layers_of(parameters: int) -> int:
    """The layers of a model of about so many weights."""
    return max(round(parameters / _LAYER_PARAMETERS), 1)


def pair_in(folder: Path, layers: int, draft_layers: int = 0) -> tuple[Path, Path]:
    """A target and a draft model in ``folder``; the draft is tiny, or of ``draft_layers`` as wide as the target's."""
    options: dict[str, Any] = {"chat_template": CHATML_TEMPLATE, "context_length": CONTEXT}
    wide = {"width": _WIDTH, "heads": _HEADS, "kv_heads": _HEADS // 4, "feed_forward": _FEED_FORWARD, **options}
    draft = {**wide, "layers": draft_layers} if draft_layers else {"width": 128, "layers": 1, **options}
    target = make_model(folder / "target.gguf", layers=layers, **wide)
    return target, make_model(folder / "draft.gguf", **draft)


def text(tokens: int, seed: int) -> str:
    """Words that the pair's tokenizer spells with about so many tokens."""
    words = random.Random(seed)
    return " ".join(words.choice(WORDS) for _ in range(round(tokens / TOKENS_A_WORD)))


def measure(tokens: int, parameters: int, repeat: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), parameters)
        rounds = [bench.round(tokens, 10 * seed) for seed in range(repeat)]
    result: dict[str, Any] = {"parameters": parameters, "repeat": repeat}
    for step in STEPS:
        result[step] = {
            key: statistics.median(one[step][key] for one in rounds) for key in ("seconds", "processed", "prompt")
        }
        result[step]["share"] = statistics.median(one[step]["seconds"] / one["first"]["seconds"] for one in rounds)
    return result


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [f"{'turn':20} {'to first token':>15} {'÷ first':>8} {'processed':>10} {'of':>6}"]
    for step in STEPS:
        row = result[step]
        seconds, share = f"{row['seconds'] * 1e3:,.0f} ms", f"{row['share']:.3f}"
        lines.append(f"{LABELS[step]:20} {seconds:>15} {share:>8} {row['processed']:>10.0f} {row['prompt']:>6.0f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time to first token of a long chat")
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--parameters", type=int, default=100_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    result = measure(options.tokens, options.parameters, max(options.repeat, 1))
    if not options.json:
        print(table(result))
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
