"""Decode speed and time to first token through ``slipstream serve`` ÷ those of the engine alone.

    python -m benchmarks.server_speed [--target FILE --draft FILE] [--rounds N] [--tokens N] [--words N] [--json]

Both have an engine process of their own with the same pair (by default the bundled guide), and take turns; who begins
changes. Both read the clock where the text arrives: after the first bytes of text, and after the last. Prompts for the
time to first token are long, and different in each round.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from app import system
from app.client.process import EngineProcess
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import GenerationFinished, Round
from app.protocol.options import LoadSettings, Sampling
from tests.support.serve_process import serve_process
from tests.support.served import request

QUESTIONS = (
    "What is speculative decoding?",
    "What does the accept rule do?",
    "How do I choose a draft model?",
    "What is a KV cache?",
    "Why is the answer the same with a draft?",
)
WORDS = (
    "draft",
    "target",
    "token",
    "model",
    "speed",
    "cache",
    "context",
    "answer",
    "prompt",
    "layer",
    "head",
    "memory",
)
Times = tuple[float, float, int]
"""Seconds to the first text, seconds from there to the last, tokens."""


def through_server(port: int, prompt: str, tokens: int) -> Times:
    """A streamed request on a connection that is there already."""
    body = {
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": tokens,
        "seed": 1,
    }
    with socket.create_connection(("127.0.0.1", port)) as client:
        data = request("POST", "/v1/chat/completions", json.dumps(body).encode())
        received, first, last = b"", 0.0, 0.0
        begun = time.perf_counter()
        client.sendall(data)
        while b"[DONE]" not in received[-200:]:
            part = client.recv(65536)
            now = time.perf_counter()
            received += part
            if b'"content":"' in part.replace(b'"content":""', b""):
                first, last = first or now, now
    usage = json.loads(received.rpartition(b'"usage":')[2].split(b',"timings"')[0])
    return first - begun, last - first, usage["completion_tokens"]


def alone(engine: EngineProcess, sampling: Sampling, prompt: str, tokens: int) -> Times:
    """The same by the engine itself."""
    command = Generate(
        request=0,
        messages=[Message(role="user", content=prompt)],
        sampling=sampling,
        seed=1,
        max_tokens=tokens,
        overflow="stop",
        private=True,
    )
    first = last = 0.0
    count = 0
    begun = time.perf_counter()
    for event in engine.generate(command):
        if isinstance(event, Round) and any(piece.text for piece in event.pieces):
            last = time.perf_counter()
            first = first or last
        if isinstance(event, GenerationFinished):
            count = event.figures.completion_tokens
    return first - begun, last - first, count


def measure(target: Path, draft: Path, rounds: int, tokens: int, words: int) -> dict[str, Any]:
    """Medians of ``rounds`` turns, each with five questions and a long prompt."""
    speeds: dict[str, list[float]] = {"server": [], "engine": []}
    firsts: dict[str, list[float]] = {"server": [], "engine": []}
    random_words = random.Random(1)
    with (
        tempfile.TemporaryDirectory() as name,
        serve_process("--target", target, "--draft", draft, home=Path(name)) as (_, port),
        EngineProcess(SLIPSTREAM_HOME=name) as engine,  # with the costs that the server's engine has measured
    ):
        settings = LoadSettings(chat_cache_mib=0)
        pair = engine.load(Load(request=0, target=str(target), draft=str(draft), settings=settings))
        sides = {
            "server": lambda prompt: through_server(port, prompt, tokens),
            "engine": lambda prompt: alone(engine, pair.sampling, prompt, tokens),
        }
        for turn in range(rounds + 1):
            long = " ".join(random_words.choices(WORDS, k=words))
            for number, prompt in enumerate((*QUESTIONS, long)):
                order = sorted(sides, reverse=(turn + number) % 2 == 0)
                found = {side: sides[side](prompt) for side in order}
                # The first turn warms both up. Where this process got no time, all of a text arrived at once.
                if not turn or not all(seconds for _, seconds, _ in found.values()):
                    continue
                for side, (first, seconds, count) in found.items():
                    if prompt == long:
                        firsts[side].append(first)
                    else:
                        speeds[side].append((count - 1) / seconds)
    return {
        "rounds": rounds,
        **{f"{side}_tokens_per_second": statistics.median(found) for side, found in speeds.items()},
        **{f"{side}_first_token_ms": 1e3 * statistics.median(found) for side, found in firsts.items()},
        "speed_ratio": statistics.median(speeds["server"]) / statistics.median(speeds["engine"]),
        "first_token_ratio": statistics.median(firsts["server"]) / statistics.median(firsts["engine"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=system.resource("guide", "guide-target.gguf"))
    parser.add_argument("--draft", type=Path, default=system.resource("guide", "guide-draft.gguf"))
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--words", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.target, options.draft, options.rounds, options.tokens, options.words)
    if options.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name}: {value:.3f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
