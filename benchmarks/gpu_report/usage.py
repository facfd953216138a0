"""What users notice besides speed: how quickly Stop stops, whether memory is as planned, and the same answers."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from app.engine.host.engine import Engine
from app.engine.llama import backend
from app.models.gguf import read_header
from app.models.model_memory import shape_of
from app.protocol.commands import Cancel, Generate, Load, Message
from app.protocol.events import Event, GenerationFinished, GenerationStarted, LoadFailed, PairLoaded, RoundsReceived
from app.protocol.options import ALL_LAYERS, KvType, Sampling
from benchmarks.architecture_checks import Case, check
from benchmarks.engine import questions
from benchmarks.gpu_report.sizes import Bench
from benchmarks.inflate import GUIDE
from tests.support.architectures import make
from tests.support.engine_process import EngineProcess
from tests.support.generation import GREEDY, ask, run
from tests.support.memory import estimate

_ENDLESS = Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0)
_ROUNDS = 4
_LOAD_SECONDS = 300
_KV_TYPES: tuple[KvType, ...] = ("f16", "q8_0")


def stop(bench: Bench) -> Iterator[dict[str, Any]]:
    """Milliseconds from Cancel to the end: while an answer is decoded, and while a prompt is processed."""
    with EngineProcess() as process:
        settings = bench.settings(context_length=bench.sizes.prompt + 512)
        process.send(Load(request=1, target=str(bench.target("q8_0")), draft=str(GUIDE[1]), settings=settings))
        while not isinstance(event := process.next(_LOAD_SECONDS), PairLoaded):
            if isinstance(event, LoadFailed):
                raise SystemExit(event.message)
        yield {"decoding": _stops(process, bench, "")}
        yield {"prompt": _stops(process, bench, "many words " * (bench.sizes.prompt // 4))}


def _stops(process: EngineProcess, bench: Bench, before: str) -> dict[str, float]:
    """The median and the longest; ``before`` is put before each question, and the prompt is canceled then.

    An answer is canceled after a few rounds, when nothing but passes is computed; one that ends before isn't counted.
    """
    milliseconds = []
    for seed, text in enumerate(questions(bench.sizes.stops)):
        message = Message(role="user", content=f"{seed} {before}{text}")
        process.send(Generate(request=2, messages=[message], sampling=_ENDLESS, seed=seed, max_tokens=400))
        if not _reached(process, GenerationStarted if before else RoundsReceived, 1 if before else _ROUNDS):
            continue
        begun = time.perf_counter()
        process.send(Cancel())
        process.until(GenerationFinished)
        milliseconds.append(1e3 * (time.perf_counter() - begun))
    return {"median": statistics.median(milliseconds), "longest": max(milliseconds)} if milliseconds else {}


def _reached(process: EngineProcess, kind: type[Event], count: int) -> bool:
    """Whether so many events of that ``kind`` came before the end of the answer."""
    while count:
        event = process.next()
        if isinstance(event, GenerationFinished):
            return False
        count -= isinstance(event, kind)
    return True


# ---------------------------------------------------------------- memory


def memory(bench: Bench) -> Iterator[dict[str, Any]]:
    """Bytes on the GPU: as planned, as llama.cpp's backend reports them, and as the driver's tool does."""
    backend.start()
    target = bench.target("q8_0")
    yield {"before": {"free": _free(), "driver": _driver_bytes()}}
    for context in bench.sizes.contexts:
        for kv_type in _KV_TYPES:
            free, driver = _free(), _driver_bytes()
            settings = bench.settings(context_length=context, kv_type=kv_type)
            engine = Engine()
            engine.load(Load(request=1, target=str(target), draft=str(GUIDE[1]), settings=settings), lambda _: None)
            run(engine, ask("What is a draft model?", sampling=GREEDY, draft_length=5, max_tokens=16))
            planned = estimate(
                shape_of(read_header(target)),
                shape_of(read_header(GUIDE[1])),
                context_length=context,
                kv_type=kv_type,
                target_gpu_layers=ALL_LAYERS,
                draft_gpu_layers=ALL_LAYERS,
            )
            figures = {"planned": planned.gpu.total, "llama.cpp": free - _free(), "driver": _driver_bytes() - driver}
            engine.unload()
            yield {f"{context}, {kv_type}": {**figures, "left behind": free - _free()}}


def _free() -> int:
    return sum(device.free_bytes for device in backend.devices())


def _driver_bytes() -> int:
    """In use on all GPUs, whoever uses it; 0 without NVIDIA's tool."""
    if not shutil.which("nvidia-smi"):
        return 0
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return sum(int(line) for line in done.stdout.split()) * 1024 * 1024


# ---------------------------------------------------------------- answers of other architectures


def architectures(bench: Bench) -> Iterator[dict[str, Any]]:
    """How many answers are the same however their tokens are drafted (`benchmarks.architecture_checks`)."""
    other = make(bench.folder / "other.gguf", "llama", seed=5)
    for name in bench.sizes.architectures:
        model = make(bench.folder / f"tiny-{name}.gguf", name)  # type: ignore[arg-type]
        cases = [case for case in check(model, other) if isinstance(case, Case)]
        counts = Counter(case.result for case in cases)
        wrong = [f"{case.way}, {case.sampling}, {case.event}: {case.message or case.result}" for case in cases]
        bad = [text for text, case in zip(wrong, cases, strict=True) if case.result in ("different", "failed")]
        yield {name: {**counts, "wrong": bad[:5]}}
