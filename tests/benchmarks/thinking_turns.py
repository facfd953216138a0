"""Time to first token of the second turn of a chat with a hybrid model that thinks, beside the first turn's.

    python -m tests.benchmarks.thinking_turns [--tokens N] [--layers N] [--repeat N] [--json]

The model has random weights and an architecture whose running state can't be cut (``qwen35``: every second layer). Its
template begins the thinking and leaves it out of later prompts, so the second prompt differs from what the cache holds
just behind the first question. Turns take turns in one process; figures are medians. ``processed`` is what decides, and
does not depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.engine.host.engine import Engine
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import GenerationFinished, Round
from app.protocol.options import LoadSettings
from tests.benchmarks.second_turn import CONTEXT, WORDS, text
from tests.support.architectures import make
from tests.support.gguf_files import CHATML_TEMPLATE

THINKING_TOKENS, ANSWER_TOKENS = 64, 32
TEMPLATE = CHATML_TEMPLATE.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")
QUESTION = f"And what follows from that for the next {WORDS[0]}?"


def answered(engine: Engine, messages: Sequence[Message], seed: int) -> tuple[Message, dict[str, float]]:
    """The answer to a chat: as the next prompt has it, and its figures."""
    pieces = []
    command = Generate(
        request=2,
        messages=list(messages),
        seed=seed,
        thinking_budget=THINKING_TOKENS,
        max_tokens=THINKING_TOKENS + ANSWER_TOKENS,
    )
    for event in engine.generate(command):
        if isinstance(event, Round):
            pieces += event.pieces
        if isinstance(event, GenerationFinished):
            figures = event.figures
    thinking, answer = ("".join(p.text for p in pieces if p.thinking == wanted) for wanted in (True, False))
    assert thinking and answer and figures.time_to_first_token_seconds is not None
    processed = figures.prompt_tokens - figures.cached_tokens
    told = {"seconds": figures.time_to_first_token_seconds, "processed": processed, "prompt": figures.prompt_tokens}
    return Message(role="assistant", content=answer, thinking=thinking), told


def measure(tokens: int, layers: int, repeat: int) -> dict[str, Any]:
    """Medians over ``repeat`` chats of two turns."""
    rounds: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as name:
        shape = {"width": 512, "heads": 8, "kv_heads": 2, "feed_forward": 1408, "layers": layers}
        path = make(
            Path(name) / "hybrid.gguf", "qwen35", chat_template=TEMPLATE, context_length=CONTEXT, weights="F16", **shape
        )
        engine = Engine()
        engine.load(Load(request=1, target=str(path), settings=LoadSettings(context_length=CONTEXT)), lambda _: None)
        for seed in range(repeat):
            chat = [Message(role="user", content=text(tokens, seed))]
            answer, first = answered(engine, chat, seed)
            chat += [answer, Message(role="user", content=QUESTION)]
            rounds.append({"first": first, "second": answered(engine, chat, seed)[1]})
        engine.unload()
    result: dict[str, Any] = {"layers": layers, "repeat": repeat}
    for turn in ("first", "second"):
        result[turn] = {
            key: statistics.median(one[turn][key] for one in rounds) for key in ("seconds", "processed", "prompt")
        }
    result["share"] = statistics.median(one["second"]["seconds"] / one["first"]["seconds"] for one in rounds)
    return result


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    result = measure(options.tokens, options.layers, max(options.repeat, 1))
    if not options.json:
        for turn in ("first", "second"):
            row = result[turn]
            seconds, processed, prompt = row["seconds"], row["processed"], row["prompt"]
            print(f"{turn} turn: {seconds * 1e3:,.0f} ms to the first token, {processed:.0f} of {prompt:.0f} processed")
        print(f"second ÷ first: {result['share']:.3f}")
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
