"""Ten thousand requests from several clients at once: what they get, and what it costs in memory.

    python -m benchmarks.server_load [--window] [--clients N] [--requests N] [--json]

They go to ``slipstream serve``, or with ``--window`` to a window (without a screen) whose switch is on.

A tiny model that thinks, with a draft; what it writes is different with every seed. Half of the requests are streamed.
Each client keeps its connection, and after 429 waits for as long as it is told before its next request. Every text is
compared with that of the engine alone. Memory is the resident set of each process (the server, its engine, the window),
at the end ÷ after the first 500 requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from app.client.process import EngineProcess
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import Round
from app.protocol.options import LoadSettings, Sampling
from tests.support.serve_process import serve_process, window_that_serves
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


async def load(
    processes: dict[str, psutil.Process], port: int, clients: int, requests: int, texts: list[Texts]
) -> dict[str, Any]:
    """Ask ``requests`` times; returns the counts, and the memory of ``processes``."""
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
                memory.append([one.memory_info().rss for one in processes.values()])
            await asyncio.sleep(pause)

    begun = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - begun
    first, last = memory[0], memory[-1]
    return {
        "clients": clients,
        "requests": requests,
        "statuses": dict(statuses),
        "wrong_texts": wrong,
        "seconds": round(seconds, 1),
        "mib": {
            name: [round(one / 2**20, 1) for one in both] for name, *both in zip(processes, first, last, strict=True)
        },
        "memory_ratio": {
            name: round(after / before, 3) for name, before, after in zip(processes, first, last, strict=True)
        },
    }


@contextmanager
def serving(target: Path, draft: Path, home: Path, *, window: bool) -> Iterator[tuple[dict[str, psutil.Process], int]]:
    """The processes by name, and the port."""
    if not window:
        with serve_process("--target", target, "--draft", draft, home=home) as (process, port):
            yield {"server": process, "engine": _engine_of(process)}, port
        return
    with window_that_serves(target, draft, home=home) as served:
        yield {"server": served.server, "engine": _engine_of(served.window), "window": served.window}, served.port


def _engine_of(process: psutil.Process) -> psutil.Process:
    (engine,) = (one for one in process.children() if "--role=engine" in one.cmdline())
    return engine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", action="store_true", help="the server of a window instead of slipstream serve")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        target = make_thinking_model(folder / "target.gguf", "qwen3.5")
        draft = make_thinking_model(folder / "draft.gguf", "qwen3.5", noise=0.5)
        texts = expected(target, draft)
        with serving(target, draft, folder / "home", window=options.window) as (processes, port):
            figures = asyncio.run(load(processes, port, options.clients, options.requests, texts))
    if options.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name}: {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
