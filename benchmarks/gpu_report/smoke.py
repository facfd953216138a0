"""Whether it works at all: the devices, the self-test, the same texts as on the processor, a context too large."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import llama_cpp
import msgspec
import psutil

from app.client.connection import EngineEndedError
from app.client.process import EngineProcess
from app.commands.selftest import CHECKS, Workplace
from app.engine.host.engine import Engine
from app.engine.llama import backend
from app.models.gguf import read_header
from app.models.model_memory import shape_of
from app.protocol.commands import Generate, Load
from app.protocol.options import MAX_CONTEXT_LENGTH, LoadSettings
from app.system import KnownError
from benchmarks.engine import questions
from benchmarks.gpu_report.sizes import Bench
from benchmarks.inflate import GUIDE
from tests.support.generation import GREEDY, Answer, ask, first_difference, run, scores_at
from tests.support.memory import estimate

_NVIDIA = "name,driver_version,memory.total,compute_cap,power.limit,clocks.max.sm,clocks.max.mem"
_DRAFT_LENGTH = 5
_CHECKS = ("program", "engine", "guide")
"""Of ``slipstream selftest``: those that need no window, no keyring and no network."""


def devices(_: Bench) -> Iterator[dict[str, Any]]:
    """What llama.cpp and the driver say is here."""
    backend.start()
    found = backend.devices()
    yield {
        "devices": msgspec.to_builtins(found),
        "driver": backend.driver_name([device.description for device in found]),
        "engine": backend.engine_name(),
        "processor": _processor(),
        "cores": psutil.cpu_count(logical=False),
        "memory": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", f"--query-gpu={_NVIDIA}", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        yield {"nvidia-smi": dict(zip(_NVIDIA.split(","), done.stdout.strip().split(", "), strict=False))}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8", "replace").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def selftest(_: Bench) -> Iterator[dict[str, Any]]:
    """Each check's own words."""
    for name in _CHECKS:
        with Workplace() as work:
            yield {name: CHECKS[name](work)}


# ---------------------------------------------------------------- texts


def greedy_texts(bench: Bench) -> Iterator[dict[str, Any]]:
    """The guide's answers: processor against GPU, and plain against drafted, both on the GPU."""
    asked = [
        ask(text, sampling=GREEDY, draft_length=0, max_tokens=bench.sizes.tokens)
        for text in questions(bench.sizes.texts)
    ]
    engine = Engine()
    with patch.object(
        llama_cpp, "llama_context_default_params", _without_offload(llama_cpp.llama_context_default_params)
    ):
        on_cpu = bench.settings(target_gpu_layers=0, draft_gpu_layers=0)
        engine.load(_guide(on_cpu), lambda _: None)
        cpu = [run(engine, command) for command in asked]
        engine.unload()
    engine.load(_guide(bench.settings()), lambda _: None)
    plain = [run(engine, command) for command in asked]
    drafted = [run(engine, _drafted(command)) for command in asked]
    yield {
        "texts": len(asked),
        "processor and GPU": _compared(engine, asked, plain, cpu),
        "plain and drafted": _compared(engine, asked, drafted, plain),
        "plain tokens per second": [answer.finished.figures.decode_tokens_per_second for answer in plain],
        "drafted tokens per second": [answer.finished.figures.decode_tokens_per_second for answer in drafted],
    }
    engine.unload()


def _without_offload(default: Any) -> Any:
    """Without it, prompts would be computed on the GPU even if no layer is there."""

    def params() -> Any:
        made = default()
        made.op_offload = made.offload_kqv = False
        return made

    return params


def _guide(settings: LoadSettings) -> Load:
    return Load(request=1, target=str(GUIDE[0]), draft=str(GUIDE[1]), settings=settings)


def _drafted(command: Generate) -> Generate:
    return msgspec.structs.replace(command, draft_length=_DRAFT_LENGTH)


def _compared(
    engine: Engine, asked: Sequence[Generate], ours: Sequence[Answer], theirs: Sequence[Answer]
) -> dict[str, Any]:
    """How many texts are the same, and of the others how many differ at a near-tie."""
    near_ties, different = 0, []
    places = [first_difference(one, other) for one, other in zip(ours, theirs, strict=True)]
    for number, place in enumerate(places):
        if place is None:
            continue
        scored = scores_at(engine, asked[number], ours[number], theirs[number], place)
        if scored and scored.could_win == [True, True]:
            near_ties += 1
        else:
            different.append({"question": asked[number].messages[0].content, "token": place})
    return {"same": places.count(None), "near-ties": near_ties, "different": different}


# ---------------------------------------------------------------- a context too large


def too_large(bench: Bench) -> Iterator[dict[str, Any]]:
    """What a load says that can't fit, and whether the same engine answers afterwards."""
    target = bench.target("q8_0")
    length = _too_long(target)
    if length is None:
        yield {"skipped": "no context is too long for this machine"}
        return
    settings = bench.settings(context_length=length)
    answer = ask("What is a draft model?", sampling=GREEDY, draft_length=0, max_tokens=8)
    with EngineProcess() as engine:
        try:
            engine.load(Load(request=1, target=str(target), settings=settings))
            sentence = "it was loaded"
        except EngineEndedError as error:
            yield {"context": length, "ended": str(error)}
            return
        except KnownError as error:
            sentence = str(error)
        engine.load(Load(request=3, target=str(target), settings=bench.settings()))
        events = list(engine.generate(answer))
    yield {"context": length, "sentence": sentence, "answers afterwards": len(events) > 2}


def _too_long(target: Path) -> int | None:
    """A context that needs four times the memory of the processor and the GPUs together."""
    backend.start()
    there = psutil.virtual_memory().total + sum(device.total_bytes for device in backend.devices())
    length = 2**16
    while length < MAX_CONTEXT_LENGTH:
        length *= 2
        needed = estimate(shape_of(read_header(target)), context_length=length)
        if needed.system.total > 4 * there:
            return length
    return None
