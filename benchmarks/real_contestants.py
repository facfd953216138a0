"""Who takes part in `benchmarks.real_bench`: Slipstream's engine process, ``slipstream serve`` and llama-server.

Each one answers the same requests and tells the same figures: its own decode speed (tokens after the first ÷ time from
the first to the last, see `benchmarks.contestants`), and the time to the first token by this process's clock.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import httpx2
import llama_cpp
import psutil

from app.client.process import EngineProcess
from app.engine.llama import backend
from app.engine.llama.model import Model
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import GenerationFinished, Round
from app.protocol.options import (
    AcceptRule,
    DrafterChoice,
    DrafterName,
    DraftLength,
    HeadChoice,
    LoadSettings,
    Sampling,
)
from benchmarks.contestants import running
from benchmarks.llama_cpp_tools import Tools
from benchmarks.real_figures import texts_for_prompts, words_from
from tests.support.serve_process import serve_process

PAUSE_S = 0.05
"""Between two answers: threads of the one that has just answered spin a while before they sleep."""
_PATIENCE = 900.0
_TRIES = 5
_DEFAULTS = Sampling()
_BUSY = """
import os
os.nice({nice})
parent = os.getppid()
while os.getppid() == parent:  # it ends with the benchmark, however that ends
    for _ in range(1_000_000):
        pass
"""


@dataclass(frozen=True)
class Request:
    """What to answer. ``tokens`` are those of the prompt; ``raw``: ``text`` is the prompt, without a chat template."""

    text: str
    tokens: Sequence[int]
    max_tokens: int
    sampling: Sampling = _DEFAULTS
    seed: int = 1
    raw: bool = True
    fresh: bool = False
    """Whether the figure wanted is the time to the first token, which has to be sent as soon as it is there."""


@dataclass(frozen=True)
class Said:
    """An answer. ``speed`` in tokens per second, ``None`` below two tokens; ``first_seconds`` to the first token."""

    text: str
    count: int
    speed: float | None
    first_seconds: float
    processed: int
    """Tokens of the prompt that were not in the KV cache."""
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    passes: int = 0
    tokens: list[int] = field(default_factory=list)
    """Its tokens; empty for a server."""
    own_seconds: float | None = None
    """Of a round, the median outside the verify pass; unknown for a server."""


class Contestant(Protocol):
    """What answers."""

    def ask(self, request: Request) -> Said: ...


@dataclass(frozen=True)
class Loaded:
    """A process with its model: seconds from its start, and itself."""

    contestant: Contestant
    process_id: int
    load_seconds: float
    threads: int
    start_seconds: float | None = None
    """Of ours: until the process greets, before it loads anything."""
    exact_unit: int = 0
    """Of ours: `PairLoaded.exact_unit`."""
    drafters: Sequence[DrafterName] = ()
    """Of ours: `PairLoaded.all_drafters`."""

    def peak_bytes(self) -> int | None:
        """The most memory that it has had at once, as Linux counts it; ``None`` elsewhere."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.process_id}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return 1024 * int(line.split()[1])
        return None


# ---------------------------------------------------------------- Slipstream


@dataclass(frozen=True)
class Ours:
    """An engine process as `slipstream generate` has it, with one way of drafting."""

    engine: EngineProcess
    drafter: DrafterChoice = "none"
    draft_length: DraftLength = 0
    accept: AcceptRule = "coupled"

    def ask(self, request: Request) -> Said:
        """Its answer. Ends this process if the prompt has other tokens than the request says."""
        begun, first = time.perf_counter(), 0.0
        pieces, rounds = [], []
        for event in self.engine.generate(self.command(request)):
            if isinstance(event, Round):
                first = first or (time.perf_counter() if event.tokens else 0.0)
                rounds.append(event)
                pieces += event.pieces
            if isinstance(event, GenerationFinished):
                figures = event.figures
        _check_prompt(figures.prompt_tokens, request)
        own = [each.draft_seconds + each.other_seconds for each in rounds if each.verify_passes]
        return Said(
            text="".join(piece.text for piece in pieces),
            count=figures.completion_tokens,
            speed=figures.decode_tokens_per_second,
            first_seconds=first - begun,
            processed=figures.prompt_tokens - figures.cached_tokens,
            drafted=figures.draft.drafted,
            tested=figures.draft.tested,
            accepted=figures.draft.accepted,
            passes=figures.draft.verify_passes,
            tokens=[piece.id for piece in pieces if piece.id >= 0],
            own_seconds=statistics.median(own) if own else None,
        )

    def command(self, request: Request) -> Generate:
        """What the engine is asked."""
        return Generate(
            request=0,
            messages=[Message(role="user", content=request.text)],
            sampling=request.sampling,
            seed=request.seed,
            max_tokens=request.max_tokens,
            raw=request.raw,
            drafter=self.drafter,
            draft_length=self.draft_length,
            accept=self.accept,
        )


@contextlib.contextmanager
def engine(
    target: Path,
    context: int,
    *,
    threads: int = 0,
    draft: Path | None = None,
    head: HeadChoice = "auto",
    home: Path | None = None,
    accept: AcceptRule = "coupled",
) -> Iterator[Loaded]:
    """Our engine with its pair; without ``threads`` as many as it finds best. ``draft`` may be a head's file. A
    ``home`` remembers what was measured at an earlier load.
    """
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        # Rounds twice a second, as llama-server is asked without a stream: who reads takes a core away from both.
        with EngineProcess("--unwatched", SLIPSTREAM_HOME=str(home or folder)) as process:
            process.hello()
            started = time.perf_counter() - begun
            pair = process.load(
                Load(
                    request=0,
                    target=str(target.absolute()),
                    draft=str(draft.absolute()) if draft else None,
                    head=head,
                    settings=LoadSettings(context_length=context, threads=threads),
                )
            )
            if refused := pair.draft_refused or pair.head_refused:
                raise SystemExit(refused)
            seconds = time.perf_counter() - begun
            ours = Ours(process, accept=accept)
            yield Loaded(ours, process.process_id, seconds, pair.threads, started, pair.exact_unit, pair.all_drafters)


@contextlib.contextmanager
def served(target: Path, context: int, *, threads: int = 0, home: Path | None = None) -> Iterator[Loaded]:
    """``slipstream serve`` without a draft."""
    options: list[str | Path] = ["--target", target.absolute(), "--context", str(context), "--no-draft"]
    options += ["--threads", str(threads)] if threads else []
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        with (
            serve_process(*options, home=home or Path(folder)) as (process, port),
            httpx2.Client(timeout=_PATIENCE, trust_env=False) as client,
        ):
            seconds = time.perf_counter() - begun
            own = max(process.children(recursive=True), key=lambda child: child.memory_info().rss, default=process)
            yield Loaded(Served(client, f"http://127.0.0.1:{port}"), own.pid, seconds, threads)


@dataclass(frozen=True)
class Served:
    """Asked over HTTP, in a stream, as other programs ask it."""

    client: httpx2.Client
    address: str

    def ask(self, request: Request) -> Said:
        """Its answer; see `Ours.ask`."""
        if not request.raw:
            raise ValueError("chats are asked of the engine itself")
        body = {"prompt": request.text, "max_tokens": request.max_tokens, "stream": True, **_sampling(request)}
        first, parts = _streamed(self.client, f"{self.address}/v1/completions", body)
        said = "".join(choice.get("text") or "" for part in parts for choice in part.get("choices", ()))
        return _said(said, first, next(part["timings"] for part in reversed(parts) if "timings" in part), request)


# ---------------------------------------------------------------- llama-server


@dataclass(frozen=True)
class LlamaServer:
    """llama.cpp's own server. Speeds are measured without a stream, which would cost it time of its own."""

    client: httpx2.Client
    address: str

    def ask(self, request: Request) -> Said:
        """Its answer."""
        body = {
            "prompt": list(request.tokens),
            "n_predict": request.max_tokens,
            "cache_prompt": True,
            "stream": request.fresh,
            **_sampling(request),
        }
        begun = time.perf_counter()
        if request.fresh:
            first, parts = _streamed(self.client, f"{self.address}/completion", body)
            return _said("".join(part["content"] for part in parts), first, parts[-1]["timings"], request)
        found = _posted(self.client, f"{self.address}/completion", body)
        timings = found["timings"]
        first = time.perf_counter() - begun - timings["predicted_ms"] / 1e3
        return _said(found["content"], first, timings, request)


@contextlib.contextmanager
def llama_server(
    programs: Tools, target: Path, context: int, threads: int, options: Sequence[str] = ()
) -> Iterator[Loaded]:
    """A llama-server."""
    command = server_command(programs, target, context, threads)
    # A connection each: it closes those that have waited for five seconds, as behind a long prompt.
    limits = httpx2.Limits(max_keepalive_connections=0)
    client = httpx2.Client(timeout=_PATIENCE, trust_env=False, limits=limits)
    with running([*command, *options]) as process, client:
        yield Loaded(LlamaServer(client, process.address), process.process_id, process.load_seconds, threads)


def server_command(programs: Tools, target: Path, context: int, threads: int) -> list[str]:
    """Program and arguments of a llama-server that drafts nothing."""
    command = [str(programs.server), "-m", str(target.absolute()), "-t", str(threads), "-c", str(context)]
    return [*command, "--offline", "--fit", "off", *([] if programs.backend == "cpu" else ["-ngl", "all"])]


def _posted(client: httpx2.Client, address: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(address, json=body)
    if answer.status_code != 200:
        raise SystemExit(f"{address} answered {answer.status_code}: {answer.text[:500]}")
    found: dict[str, Any] = answer.json()
    return found


def _streamed(client: httpx2.Client, address: str, body: dict[str, Any]) -> tuple[float, list[dict[str, Any]]]:
    """Seconds to the first token, and all parts."""
    begun, first = time.perf_counter(), 0.0
    parts: list[dict[str, Any]] = []
    with client.stream("POST", address, json=body) as answer:
        if answer.status_code != 200:
            raise SystemExit(f"{address} answered {answer.status_code}: {answer.read().decode()[:500]}")
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                first = first or time.perf_counter()
                parts.append(json.loads(line.removeprefix("data: ")))
    return first - begun, parts


def _sampling(request: Request) -> dict[str, Any]:
    sampling = request.sampling
    names = ("temperature", "top_k", "top_p", "min_p")
    return {"seed": request.seed, **{name: getattr(sampling, name) for name in names}}


def _said(text: str, first: float, timings: dict[str, Any], request: Request) -> Said:
    """From the ``timings`` that llama-server sends, and ours as well."""
    _check_prompt(timings["prompt_n"] + timings["cache_n"], request)
    count, accepted = timings["predicted_n"], timings.get("draft_n_accepted", 0)
    return Said(
        text=text,
        count=count,
        speed=timings["predicted_per_second"] or None,
        first_seconds=first,
        processed=timings["prompt_n"],
        drafted=timings.get("draft_n", 0),
        tested=timings.get("draft_n", 0),
        accepted=accepted,
        passes=max(count - 1 - accepted, 0),
    )


def _check_prompt(count: int, request: Request) -> None:
    if count != len(request.tokens):
        raise SystemExit(f"A prompt of {len(request.tokens)} tokens was read as {count}: {request.text[:80]!r}")


# ---------------------------------------------------------------- prompts and turns


@contextlib.contextmanager
def vocabulary(target: Path) -> Iterator[Model]:
    """A model without its weights, which reads texts as ours and llama-server do."""
    defaults = llama_cpp.llama_model_default_params

    def without_weights() -> Any:
        params = defaults()
        params.vocab_only = True
        return params

    backend.start()
    with patch.object(llama_cpp, "llama_model_default_params", without_weights):
        model = Model(target, 0, lambda _: True)
    try:
        yield model
    finally:
        model.close()


def prompts_of(target: Path, tokens: int, numbers: Iterable[int], path: Path) -> list[Request]:
    """Prompts without a chat template, of ``tokens`` tokens or a few fewer; one of another number begins otherwise."""
    texts = texts_for_prompts(path)
    with vocabulary(target) as model:
        return [_prompt_of(model, tokens, words_from(texts, number, tokens)) for number in numbers]


def _prompt_of(model: Model, tokens: int, words: Sequence[str]) -> Request:
    """As many of ``words`` as have at most ``tokens`` tokens together."""

    def read(count: int) -> list[int]:
        return model.tokenize("".join(words[:count]).rstrip(), special=True, bos=True)

    count = bisect.bisect_right(range(len(words) + 1), tokens, key=lambda count: len(read(count))) - 1
    return Request("".join(words[:count]).rstrip(), read(count), max_tokens=1)


def whole(contestant: Contestant, request: Request) -> Said:
    """An answer as long as it may be: where the model ends it before, with another seed, a few times."""
    said = contestant.ask(request)
    for attempt in range(1, _TRIES):
        if said.count == request.max_tokens or request.sampling.temperature == 0:
            break
        time.sleep(PAUSE_S)
        said = contestant.ask(replace(request, seed=request.seed + 1000 * attempt))
    return said


def in_turn(sides: dict[str, Contestant], requests: Sequence[Request]) -> dict[str, list[Said]]:
    """The answers of all to all; the one that begins is another one with each request."""
    found: dict[str, list[Said]] = {name: [] for name in sides}
    names = list(sides)
    for number, request in enumerate(requests):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            found[name].append(whole(sides[name], request))
            time.sleep(PAUSE_S)
    return found


# ---------------------------------------------------------------- other programs


@contextlib.contextmanager
def busy(count: int, nice: int = 0) -> Iterator[None]:
    """``count`` processes that compute all the time, until the block ends."""
    command = [sys.executable, "-S", "-c", _BUSY.format(nice=nice)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes += (subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(count))
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def cores() -> int:
    """What llama-server is given as ``-t``."""
    return psutil.cpu_count(logical=False) or os.cpu_count() or 1
