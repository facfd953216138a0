"""Ten thousand requests to ``slipstream serve`` from several clients at once: what they get, and its cost in memory.

    python -m tests.benchmarks.server_load [--clients N] [--requests N] [--json]

A tiny model that thinks, with a draft; what it writes is different with every seed. Half of the requests are streamed.
Each client keeps its connection, and after 429 waits for as long as it is told before its next request. Every text is
compared with that of the engine alone. Memory is the resident set of the server's process and of its engine's, at the
end ÷ after the first 500 requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from app.client.process import EngineProcess
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import Round
from app.protocol.options import LoadSettings, Sampling
from tests.support.serve_process import serve_process
from tests.support.served import events, request, text_of
from tests.support.thinking_models import make_thinking_model

SEEDS = 200
MAX_TOKENS = 24
TEMPERATURE = 1.0
WARM = 500
Texts = tuple[str, str]
"""Thinking and answer."""


def question(seed: int) -> str:
    return f"Well, number {seed}?"


def expected(target: Path, draft: Path) -> list[Texts]:
    """What the engine alone writes with each seed."""
    texts = []
    with EngineProcess() as engine:
        settings = LoadSettings(chat_cache_mib=0)
        engine.load(Load(request=0, target=str(target), draft=str(draft), settings=settings))
        for seed in range(SEEDS):
            command = Generate(
                request=0,
                messages=[Message(role="user", content=question(seed))],
                sampling=Sampling(temperature=TEMPERATURE),
                seed=seed,
                max_tokens=MAX_TOKENS,
            )
            pieces = [piece for event in engine.generate(command) if isinstance(event, Round) for piece in event.pieces]
            parts = ("".join(piece.text for piece in pieces if piece.thinking is which) for which in (True, False))
            texts.append((next(parts), next(parts)))
    return texts


class Client:
    """One connection at a time to the server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, seed: int, *, stream: bool) -> tuple[int, Texts, float]:
        """The status, the texts, and seconds to wait."""
        messages = [{"role": "user", "content": question(seed)}]
        asked = {"messages": messages, "seed": seed, "temperature": TEMPERATURE, "max_tokens": MAX_TOKENS}
        body = json.dumps({**asked, "stream": stream}).encode()
        asking = request("POST", "/v1/chat/completions", body)
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(asking)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        content = await self._content(reader, headers)
        status = int(lines[0].split()[1])
        if headers.get("connection") == "close":
            writer.close()
            self._streams = None
        if status != 200:
            return status, ("", ""), float(headers.get("retry-after", 0))
        if stream:
            parts = events(content)
            return status, (text_of(parts, "reasoning_content"), text_of(parts)), 0.0
        message = json.loads(content)["choices"][0]["message"]
        return status, (message.get("reasoning_content", ""), message["content"]), 0.0

    async def _content(self, reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            return await reader.readexactly(int(headers["content-length"]))
        content = b""
        while size := int(await reader.readline(), 16):
            content += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return content


async def load(process: psutil.Process, port: int, clients: int, requests: int, texts: list[Texts]) -> dict[str, Any]:
    """Ask ``requests`` times; returns the counts."""
    statuses: Counter[int] = Counter()
    numbers = iter(range(requests))
    memory: list[list[int]] = []
    wrong = 0

    async def client() -> None:
        nonlocal wrong
        own = Client(port)
        for number in numbers:
            seed = number % SEEDS
            status, found, pause = await own.ask(seed, stream=number % 2 == 0)
            statuses[status] += 1
            wrong += status == 200 and found != texts[seed]
            if sum(statuses.values()) in (min(WARM, requests), requests):
                memory.append([one.memory_info().rss for one in (process, *engines)])
            await asyncio.sleep(pause)

    engines = [one for one in process.children() if "--role=engine" in one.cmdline()]
    begun = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - begun
    return {
        "clients": clients,
        "requests": requests,
        "statuses": dict(statuses),
        "wrong_texts": wrong,
        "seconds": round(seconds, 1),
        "server_mib": [round(both[0] / 2**20, 1) for both in (memory[0], memory[-1])],
        "engine_mib": [round(both[1] / 2**20, 1) for both in (memory[0], memory[-1])],
        "server_memory_ratio": round(memory[-1][0] / memory[0][0], 3),
        "engine_memory_ratio": round(memory[-1][1] / memory[0][1], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        target = make_thinking_model(folder / "target.gguf", "qwen3.5")
        draft = make_thinking_model(folder / "draft.gguf", "qwen3.5", noise=0.5)
        texts = expected(target, draft)
        with serve_process("--target", target, "--draft", draft, home=folder / "home") as (process, port):
            figures = asyncio.run(load(process, port, options.clients, options.requests, texts))
    if options.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name}: {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
