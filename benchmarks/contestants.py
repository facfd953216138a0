"""Who takes part in `benchmarks.peer`: llama.cpp's programs and Slipstream's engine, each as a function to ask.

Decode speed is tokens after the first ÷ time from the first to the last, in Slipstream and in llama-server's
``predicted_per_second`` alike. llama-speculative-simple has no time of the first token: its figure is all tokens ÷ the
time of all verify passes, the first included. It draws n + 1 tokens where n are asked, so it is asked for one less.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from app.engine.host.engine import Engine
from app.protocol.commands import Generate, Load, Message
from app.protocol.options import DrafterChoice, DraftLength, LoadSettings
from benchmarks.llama_cpp_tools import Tools
from tests.support.generation import GREEDY, run

SERVER_PLAIN, SERVER_FIXED, SERVER_DEFAULT = "llama-server plain", "llama-server fixed", "llama-server default draft"
SIMPLE = "llama-speculative-simple fixed"
PLAIN, FIXED, AUTO = "Slipstream plain", "Slipstream fixed", "Slipstream auto"
_START_S, _ANSWER_S = 300, 600


@dataclass(frozen=True)
class Question:
    """A question as text, as the prompt our chat template makes of it, and as the tokens of that."""

    kind: str
    text: str
    prompt: str
    tokens: list[int]


@dataclass(frozen=True)
class Answer:
    """What a contestant said, and its own figures. ``speed`` in tokens per second, ``None`` below two tokens."""

    text: str
    tokens: int
    speed: float | None
    drafted: int
    accepted: int


Ask = Callable[[Question], Answer]


@dataclass(frozen=True)
class Settings:
    """What all contestants have in common."""

    target: Path
    draft: Path
    draft_length: int
    threads: int
    context: int
    max_tokens: int
    llama_draft_threads: int | None = None
    """Threads of the draft model in llama.cpp; ``None`` leaves it at its default, those of the target."""


def slipstream(engine: Engine, settings: Settings, draft_length: DraftLength, drafter: DrafterChoice) -> Ask:
    """Our engine, without the process around it."""

    def ask(question: Question) -> Answer:
        command = Generate(
            request=2,
            messages=[Message(role="user", content=question.text)],
            sampling=GREEDY,
            seed=1,
            max_tokens=settings.max_tokens,
            draft_length=draft_length,
            drafter=drafter,
        )
        answer = run(engine, command)
        figures = answer.finished.figures
        return Answer(
            text=answer.text,
            tokens=figures.completion_tokens,
            speed=figures.decode_tokens_per_second,
            drafted=figures.draft.tested,
            accepted=figures.draft.accepted,
        )

    return ask


def _environment() -> dict[str, str]:
    """Ours without what Slipstream sets for itself and what would change llama.cpp's defaults."""
    ours = ("GOMP_SPINCOUNT", "GGML_NO_BACKTRACE")
    return {key: value for key, value in os.environ.items() if key not in ours and not key.startswith("LLAMA_ARG_")}


def _options(programs: Tools, settings: Settings) -> list[str]:
    options = ["-m", str(settings.target), "-t", str(settings.threads), "-c", str(settings.context), "--offline"]
    return [*options, "--fit", "off", *([] if programs.backend == "cpu" else ["-ngl", "all"])]


def _draft_options(programs: Tools, settings: Settings, length: int | None) -> list[str]:
    """A draft model, drafting llama.cpp's default number of tokens for a ``length`` of ``None``."""
    options = ["-md", str(settings.draft), "--spec-type", "draft-simple"]
    if length is not None:
        options += ["--spec-draft-n-max", str(length)]
    if settings.llama_draft_threads is not None:
        options += ["-td", str(settings.llama_draft_threads), "-tbd", str(settings.llama_draft_threads)]
    return [*options, *([] if programs.backend == "cpu" else ["-ngld", "all"])]


@dataclass(frozen=True)
class Running:
    """A llama-server that has loaded its model."""

    process_id: int
    address: str
    load_seconds: float
    """From the start of the process."""


@contextlib.contextmanager
def running(command: Sequence[str]) -> Iterator[Running]:
    """A llama-server, started with ``command`` and one slot on a free port of this machine, while the block lasts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # No prompt cache in RAM: it would copy the KV cache between two questions.
    own = ["--host", "127.0.0.1", "--port", str(port), "-np", "1", "-cram", "0", "--no-ui"]
    with tempfile.TemporaryFile() as log:
        begun = time.perf_counter()
        process = subprocess.Popen([*command, *own], env=_environment(), stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_for(process, f"http://127.0.0.1:{port}/health", lambda: _end_of(log))
            yield Running(process.pid, f"http://127.0.0.1:{port}", time.perf_counter() - begun)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def server(programs: Tools, settings: Settings, draft_options: Sequence[str]) -> Iterator[Ask]:
    """A llama-server for as long as the block lasts."""
    with running([str(programs.server), *_options(programs, settings), *draft_options]) as process:
        yield lambda question: _complete(f"{process.address}/completion", question, settings.max_tokens)


def _end_of(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-20:])


_http = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _wait_for(process: subprocess.Popen[bytes], address: str, log: Callable[[], str]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), _http.open(address, timeout=5):  # 503 while it loads is an OSError as well
            return
        time.sleep(0.01)
    raise SystemExit(f"{log()}\nllama-server did not start.")


def _complete(address: str, question: Question, max_tokens: int) -> Answer:
    body = {
        "prompt": question.tokens,
        "n_predict": max_tokens,
        "temperature": 0,
        "seed": 1,
        "cache_prompt": False,
        "stream": False,
    }
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    with _http.open(request, timeout=_ANSWER_S) as response:
        result = json.load(response)
    timings = result["timings"]
    return Answer(
        text=result["content"],
        tokens=timings["predicted_n"],
        speed=timings["predicted_per_second"] or None,
        drafted=timings.get("draft_n", 0),
        accepted=timings.get("draft_n_accepted", 0),
    )


def speculative_simple(programs: Tools, settings: Settings) -> Ask:
    """llama-speculative-simple; a process for each question, loading not counted."""
    options = [*_options(programs, settings), *_draft_options(programs, settings, settings.draft_length)]
    options += ["--temp", "0", "-n", str(settings.max_tokens - 1), "--no-escape"]

    def ask(question: Question) -> Answer:
        command = [str(programs.speculative_simple), *options, "-p", question.prompt]
        done = subprocess.run(command, check=False, env=_environment(), capture_output=True, timeout=_ANSWER_S)
        said, log = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        if done.returncode != 0:
            raise SystemExit(f"{log[-2000:]}\nllama-speculative-simple failed.")
        return read_speculative_simple(question.prompt, said, log)

    return ask


def read_speculative_simple(prompt: str, said: str, log: str) -> Answer:
    """What llama-speculative-simple wrote: prompt and answer to stdout, figures to stderr."""
    decoded = re.search(r"decoded +(\d+) tokens in +([\d.]+) seconds", log)
    counts = {name: re.search(rf"{name} += (\d+)", log) for name in ("n_drafted", "n_accept")}
    _, found, text = said.partition(prompt.strip())
    drafted, accepted = counts["n_drafted"], counts["n_accept"]
    if decoded is None or drafted is None or accepted is None or not found:
        raise SystemExit(f"{said[-1000:]}\n{log[-1000:]}\nThis output of llama-speculative-simple is not understood.")
    tokens, seconds = int(decoded[1]), float(decoded[2])
    return Answer(text, tokens, tokens / seconds if seconds else None, int(drafted[1]), int(accepted[1]))


@contextlib.contextmanager
def contestants(programs: Tools, settings: Settings) -> Iterator[dict[str, Ask]]:
    """All of them, loaded at once; only one computes at a time."""
    engine = Engine()
    load = LoadSettings(threads=settings.threads, context_length=settings.context)
    command = Load(request=1, target=str(settings.target), draft=str(settings.draft), settings=load)
    pair = engine.load(command, lambda _: None)
    if pair.draft is None:
        raise SystemExit(pair.draft_refused)
    length = settings.draft_length
    with contextlib.ExitStack() as running:
        running.callback(engine.unload)

        def served(draft_options: Sequence[str]) -> Ask:
            return running.enter_context(server(programs, settings, draft_options))

        yield {
            SERVER_PLAIN: served([]),
            PLAIN: slipstream(engine, settings, 0, "none"),
            SERVER_FIXED: served(_draft_options(programs, settings, length)),
            FIXED: slipstream(engine, settings, length, "model"),
            SIMPLE: speculative_simple(programs, settings),
            SERVER_DEFAULT: served(_draft_options(programs, settings, None)),
            AUTO: slipstream(engine, settings, "auto", "auto"),
        }
