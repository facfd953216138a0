"""Servers that other people made, on a free port of the loopback interface, each with SmolLM2: vLLM on the processor,
and llama-server inside a Python process (`tests.support.llama_in_python`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil

from app.protocol.remote import ServerKind
from tests.support.real_models import SMOLLM2, found

KEY = "s3cret-of-the-live-tests"
CONTEXT = 4096
DRAFT_LENGTH = 4
_PATIENCE = 240.0
_NOT_STARTED = "the server didn't start; the end of its log:\n"
_HELPER = Path(__file__).with_name("llama_in_python.py")


@dataclass(frozen=True)
class Product:
    """A server's program, installed in a folder of its own.

    Attributes:
        model: How it names SmolLM2.
    """

    kind: ServerKind
    version: str
    folder: Path
    model: str

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def command(self, port: int, *, drafts: bool, key: str, per_answer: bool) -> list[str]:
        """Starts it. ``per_answer``: with figures of each answer, where that is an option."""
        if self.kind == "llama.cpp":
            path = str(found(SMOLLM2))
            ngrams = {"size_n": 2, "size_m": DRAFT_LENGTH, "min_hits": 1} if drafts else None
            given = {"model": path, "port": port, "context": CONTEXT, "ngrams": ngrams, "key": key}
            return [str(self.python), str(_HELPER), json.dumps(given)]
        command = [str(self.python.with_name("vllm")), "serve", str(self.folder / self.model)]
        command += ["--served-model-name", self.model, "--host", "127.0.0.1", "--port", str(port)]
        command += ["--dtype", "bfloat16", "--max-model-len", str(CONTEXT), "--max-num-seqs", "4", "--enforce-eager"]
        if drafts:
            config = {"method": "ngram", "num_speculative_tokens": DRAFT_LENGTH, "prompt_lookup_max": 3}
            command += ["--speculative-config", json.dumps(config)]
        if per_answer:  # its parser takes all that a model says for thinking, until a mark that SmolLM2 doesn't write
            command += ["--per-request-spec-decode-metrics", "summary", "--reasoning-parser", "qwen3"]
        return [*command, *(("--api-key", key) if key else ())]


class LiveServer:
    """One that runs."""

    def __init__(self, product: Product, process: subprocess.Popen[bytes], port: int, log: Path, key: str) -> None:
        self.product = product
        self.process = process
        self.host = f"127.0.0.1:{port}"
        self.url = f"http://{self.host}"
        self.log = log
        self.key = key

    def metrics(self) -> dict[str, float]:
        """All counters and gauges, by name and labels; those of the same name are added up under it."""
        values: dict[str, float] = {}
        for line in self.request("GET", "/metrics").text.splitlines():
            if match := re.fullmatch(r"([a-z_]+:\w+)(?:\{(.*)\})? (\S+)", line):
                position = re.search(r'position="(\d+)"', match[2] or "")
                name = f"{match[1]}[{position[1]}]" if position else match[1]
                values[name] = values.get(name, 0.0) + float(match[3])
        return values

    def running(self) -> int:
        """How many answers it is writing now."""
        name = "vllm:num_requests_running" if self.product.kind == "vllm" else "llamacpp:requests_processing"
        return round(self.metrics()[name])

    def wait_until_idle(self) -> None:
        """Returns when it writes nothing any more; fails if it goes on."""
        deadline = time.monotonic() + 30
        while self.running():
            assert time.monotonic() < deadline, "the server goes on writing"
            time.sleep(0.05)

    def chat(self, **body: Any) -> httpx2.Response:
        """A bare request, without our engine."""
        return self.request("POST", "/v1/chat/completions", {"model": self.product.model, **body})

    def request(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx2.request(method, self.url + path, json=body, headers=headers, timeout=_PATIENCE)

    def kill(self) -> None:
        """At once, with all its children, as the system does when memory runs out."""
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            for one in [own, *own.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        self.process.wait()

    def end(self) -> None:
        """As Ctrl+C in its terminal would; whatever doesn't follow is killed."""
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGINT)
            self.process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def live_server(
    product: Product, folder: Path, *, drafts: bool = True, key: str = "", per_answer: bool = False
) -> Iterator[LiveServer]:
    """The server, once it answers; what it writes goes into ``folder``."""
    port = _free_port()
    log = folder / "log"
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    environment |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    environment |= {"XDG_CACHE_HOME": str(folder / "cache")}
    command = product.command(port, drafts=drafts, key=key, per_answer=per_answer)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=environment, start_new_session=True
        )
    server = LiveServer(product, process, port, log, key)
    try:
        _wait_until_ready(server)
        yield server
    finally:
        server.end()


def _wait_until_ready(server: LiveServer) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        with suppress(httpx2.HTTPError):
            if server.request("GET", "/health").status_code == 200:
                return
        if server.process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(_NOT_STARTED + server.log.read_text("utf-8", "replace")[-3000:])
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def products(folder: Path, wanted: Sequence[str]) -> dict[str, Product]:
    """By the names that `scripts/real-servers` has for them."""
    all_of_them = {
        "vllm": Product("vllm", "0.32.0", folder / "vllm-0.32.0", "SmolLM2-135M-Instruct"),
        "llama-server": Product("llama.cpp", "2026.10.11549", folder / "llama-2026.10.11549", SMOLLM2.file),
    }
    return {name: one for name, one in all_of_them.items() if not wanted or name in wanted}
