"""How far the memory estimate is from what loading really takes.

    python -m benchmarks.memory_estimate [--folder DIR] [--only NAME ...] [--json FILE] [--paged-out] [--long]

Makes models of several architectures, sizes and quantizations in a temporary folder, loads each in a fresh engine
process at three context lengths, and compares `app.models.model_memory` with what the process then holds
more than before (its resident set, all pages of the file it has mapped among them). It is a first load, in which the
engine measures passes up to the widest, then one long prompt and a short answer: weights, cache and buffers were all in
use by then. With ``--long`` there are two longer contexts, whose every token is used. With ``--paged-out`` the files'
pages are taken from the process before the last question, so that only those count which it needs again: the
estimate leaves out pages of weights that were rearranged for the processor, because the system drops them before memory
runs short. Linux only.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec
import psutil

from app import system
from app.engine.llama import backend
from app.engine.llama.backend import default_threads
from app.models.gguf import read_header
from app.models.heads import is_head_only
from app.models.model_memory import shape_of
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import GenerationFailed, GenerationFinished, GenerationStarted, Hello, LoadFailed, PairLoaded
from app.protocol.options import DrafterChoice, DraftLength, HeadChoice, KvType, LoadSettings, Sampling
from benchmarks.inflate import inflated, vocabulary_pair
from benchmarks.quantizing import Quantization, quantize
from tests.support.architectures import make
from tests.support.eagle3_models import make_table_head, make_table_target
from tests.support.engine_process import EngineProcess
from tests.support.expert_models import make_expert_model
from tests.support.gemma4_models import make_assistant, make_gemma4
from tests.support.gguf_files import Weights, make_model
from tests.support.memory import estimate
from tests.support.mtp_models import HeadArchitecture, make_table_model

MIB = 1024 * 1024
CONTEXTS = (1024, 4096, 8192)
LONG_CONTEXTS = (4096, 16384)
KV_TYPES: tuple[KvType, ...] = ("f16", "q8_0", "q4_0")
SHORT_PROMPT = 2048
"""Tokens, for models over `LARGE`: a full context of theirs takes minutes and touches no other page."""
LARGE = 100 * MIB
_ROOM_FOR_ANSWER = 64


@dataclass(frozen=True)
class Pair:
    name: str
    target: Path
    draft: Path | None = None
    """A draft model, or a file with only a head."""
    head: HeadChoice = "off"
    only_f16: bool = False
    """Its heads are too small for other KV types."""
    expert_layers: int = 0
    """`LoadSettings.expert_layers_on_cpu`."""

    @property
    def has_head(self) -> bool:
        return self.head == "on" or bool(self.draft and is_head_only(read_header(self.draft)))


@dataclass(frozen=True)
class Result:
    """Bytes."""

    name: str
    file: int
    context: int
    kv_type: str
    estimated: int
    measured: int

    @property
    def error(self) -> float:
        """Share of what was measured by which the estimate is too high (or, negative, too low)."""
        return self.estimated / self.measured - 1


# ---------------------------------------------------------------- models


def _guide(_folder: Path) -> Pair:
    target, draft = (system.resource("guide", f"guide-{part}.gguf") for part in ("target", "draft"))
    return Pair("guide with draft", target, draft)


def _vocabulary(folder: Path) -> Pair:
    return Pair("152,000 tokens, with draft", *vocabulary_pair(folder))


def _inflated(quantization: Quantization | None, with_draft: bool) -> Callable[[Path], Pair]:
    def made(folder: Path) -> Pair:
        target = inflated(folder=folder, quantization=quantization)
        kind = (quantization or "f16").upper()
        draft = system.resource("guide", "guide-draft.gguf") if with_draft else None
        return Pair(f"llama 0.6B {kind}{' with draft' if draft else ''}", target, draft)

    return made


def _grouped(folder: Path) -> Pair:
    full, path = folder / "grouped-f16.gguf", folder / "grouped-q4_0.gguf"
    make_model(
        full, width=1024, heads=16, kv_heads=4, layers=16, feed_forward=3072, vocab_size=8192, context_length=16384
    )
    quantize(full, path, "q4_0", default_threads())
    full.unlink()
    return Pair("llama, grouped heads, Q4_0", path)


def _windows(folder: Path) -> Pair:
    path = folder / "windows.gguf"
    make(path, "gemma3", width=768, heads=8, kv_heads=4, layers=16, feed_forward=3072, weights="F16", vocab_size=512)
    return Pair("gemma3, sliding windows, F16", path)


def _hybrid(folder: Path) -> Pair:
    path = folder / "hybrid.gguf"
    make(path, "qwen35", width=768, heads=8, kv_heads=2, layers=12, feed_forward=2304, weights="Q8_0")
    return Pair("qwen35, hybrid, Q8_0", path)


def _recurrent(folder: Path) -> Pair:
    path = folder / "recurrent.gguf"
    make(path, "mamba", width=768, layers=16, weights="F16")
    return Pair("mamba, recurrent, F16", path)


def _experts(folder: Path) -> Pair:
    path = make_expert_model(
        folder / "experts.gguf", experts=8, width=512, heads=8, layers=8, feed_forward=1024, weights="F16"
    )
    return Pair("llama, 8 experts, F16", path)


def _experts_quantized(on_cpu: bool) -> Callable[[Path], Pair]:
    """``on_cpu``: llama.cpp is told to keep them in system memory, as it is where there is a GPU."""

    def made(folder: Path) -> Pair:
        full, path = folder / "experts-f16.gguf", folder / "experts-q4_0.gguf"
        make_expert_model(full, experts=16, width=512, heads=8, layers=8, feed_forward=2048, weights="F16")
        quantize(full, path, "q4_0", default_threads())
        full.unlink()
        name = "llama, 16 experts, Q4_0"
        return Pair(f"{name}, kept in system memory" if on_cpu else name, path, expert_layers=8 if on_cpu else 0)

    return made


_HEADS: dict[HeadArchitecture, dict[str, Any]] = {
    "glm4moe": {"width": 768, "heads": 8, "kv_heads": 4, "layers": 9, "feed_forward": 3072, "unused": 16_000},
    "qwen35": {"width": 768, "heads": 8, "kv_heads": 2, "layers": 13, "feed_forward": 2304, "unused": 16_000},
}


def _with_head(architecture: HeadArchitecture, head: HeadChoice, weights: Weights) -> Callable[[Path], Pair]:
    def made(folder: Path) -> Pair:
        path = folder / f"head-{architecture}.gguf"
        make_table_model(path, architecture, weights=weights, context_length=16384, **_HEADS[architecture])
        return Pair(
            f"{architecture} {weights}{', MTP head' if head == 'on' else ', without its MTP head'}", path, None, head
        )

    return made


def _sidecar(architecture: HeadArchitecture) -> Callable[[Path], Pair]:
    def made(folder: Path) -> Pair:
        pair = _with_head(architecture, "off", "F16")(folder)
        path = folder / f"mtp-{architecture}.gguf"
        options = _HEADS[architecture]
        trunk = tuple(f"blk.{number}." for number in range(options["layers"] - 1))
        make_table_model(path, architecture, weights="F16", without=trunk, **options)
        return Pair(f"{architecture} F16, MTP head beside it", pair.target, path)

    return made


def _assistant(folder: Path) -> Pair:
    options: dict[str, Any] = {"width": 1536, "weights": "F16", "context_length": 16384}
    target = make_gemma4(folder / "gemma4.gguf", **options)
    head = make_assistant(folder / "mtp-gemma4.gguf", **options)
    return Pair("gemma4 F16, assistant", target, head, only_f16=True)


def _eagle3(own: bool) -> Callable[[Path], Pair]:
    def made(folder: Path) -> Pair:
        options: dict[str, Any] = {"width": 768, "unused": 48_000, "weights": "F16", "context_length": 16384}
        target = make_table_target(folder / "eagle.gguf", layers=12, heads=8, feed_forward=2304, **options)
        matrices, knows = (("output.weight",), range(384)) if own else ((), None)
        head = make_table_head(folder / f"eagle3-{own}.gguf", own=matrices, knows=knows, heads=8, **options)
        return Pair(f"llama F16, EAGLE-3 head{' with a vocabulary of its own' if own else ''}", target, head)

    return made


MODELS: dict[str, Callable[[Path], Pair]] = {
    "guide": _guide,
    "vocabulary": _vocabulary,
    "f16": _inflated(None, with_draft=False),
    "q8_0": _inflated("q8_0", with_draft=True),
    "q4_k_m": _inflated("q4_k_m", with_draft=False),
    "grouped": _grouped,
    "windows": _windows,
    "hybrid": _hybrid,
    "recurrent": _recurrent,
    "experts": _experts,
    "experts_q4_0": _experts_quantized(on_cpu=False),
    "experts_on_cpu": _experts_quantized(on_cpu=True),
    "glm_alone": _with_head("glm4moe", "off", "F16"),
    "glm_head": _with_head("glm4moe", "on", "F16"),
    "glm_beside": _sidecar("glm4moe"),
    "qwen_alone": _with_head("qwen35", "off", "Q8_0"),
    "qwen_head": _with_head("qwen35", "on", "Q8_0"),
    "assistant": _assistant,
    "eagle3": _eagle3(own=False),
    "eagle3_vocabulary": _eagle3(own=True),
}

# ---------------------------------------------------------------- measuring


def measured(pair: Pair, settings: LoadSettings, *, paged_out: bool = False, whole: bool = False) -> int:
    """Bytes a fresh engine process holds more once the pair is loaded and has answered.

    ``whole``: a prompt that fills the context.
    """
    with EngineProcess() as engine:
        engine.until(Hello)
        process = psutil.Process(engine.process.pid)
        before = process.memory_info().rss
        draft = str(pair.draft) if pair.draft else None
        engine.send(Load(request=1, target=str(pair.target), draft=draft, head=pair.head, settings=settings))
        while not isinstance(event := engine.next(300), PairLoaded):
            if isinstance(event, LoadFailed):
                raise SystemExit(f"{pair.name}: {event.message}")
        if pair.has_head != event.has_head or (pair.draft and not (event.draft or event.has_head)):
            raise SystemExit(f"{pair.name}: {event.head_refused or event.draft_refused}")
        room = event.context_length - _ROOM_FOR_ANSWER
        tokens = room if whole else _prompt_tokens(pair, room)
        _answer(engine, tokens, event.head_drafter or "auto")
        if paged_out:
            _page_out(process, {str(path.resolve()) for path in (pair.target, pair.draft) if path})
            _ask(engine, 4, "3" * min(tokens, 512))
        return process.memory_info().rss - before


class _Range(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


_PROCESS_MADVISE, _MADV_PAGEOUT = 440, 21


def _page_out(process: psutil.Process, files: set[str]) -> None:
    """Take the pages of ``files`` from a process; what it uses of them it reads again."""
    library = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(process.pid)
    try:
        for mapping in process.memory_maps(grouped=False):
            if mapping.path in files:
                start, end = (int(address, 16) for address in mapping.addr.split("-"))
                span = _Range(start, end - start)
                if library.syscall(_PROCESS_MADVISE, handle, ctypes.byref(span), 1, _MADV_PAGEOUT, 0) < 0:
                    raise OSError(ctypes.get_errno(), "process_madvise")
    finally:
        os.close(handle)


def _prompt_tokens(pair: Pair, room: int) -> int:
    is_large = pair.target.stat().st_size > LARGE and not pair.has_head  # whose hidden states take memory as they come
    return min(room, SHORT_PROMPT) if is_large else room


def _answer(engine: EngineProcess, tokens: int, drafter: DrafterChoice) -> None:
    """Have the pair answer a prompt of nearly ``tokens`` tokens; how many a text has is tried out first."""
    probe = 256
    used = _ask(engine, 2, "1" * probe)
    _ask(engine, 3, "2" * (tokens * probe // used - probe // 8), drafter)


def _ask(engine: EngineProcess, request: int, text: str, drafter: DrafterChoice = "auto") -> int:
    """Ask for a short answer; returns the tokens of the prompt. A head drafts from the first token on."""
    messages = [Message(role="user", content=text)]
    sampling = Sampling(temperature=0)
    length: DraftLength = "auto" if drafter == "auto" else 3
    asked = Generate(request=request, messages=messages, sampling=sampling, max_tokens=16, raw=True)
    engine.send(msgspec.structs.replace(asked, drafter=drafter, draft_length=length))
    tokens = 0
    while not isinstance(event := engine.next(600), GenerationFinished):
        if isinstance(event, GenerationStarted):
            tokens = event.prompt_tokens
        if isinstance(event, GenerationFailed):
            raise SystemExit(event.message)
    return tokens


def results(pair: Pair, kv_types: Iterator[KvType], *, paged_out: bool, long: bool) -> Iterator[Result]:
    target, draft = (shape_of(read_header(path)) if path else None for path in (pair.target, pair.draft))
    assert target is not None
    head = (draft or target) if pair.has_head else None
    files = sum(path.stat().st_size for path in (pair.target, pair.draft) if path)
    for context in LONG_CONTEXTS if long else CONTEXTS:
        kv_type = "f16" if pair.only_f16 else next(kv_types)
        options: dict[str, Any] = {
            "context_length": context,
            "kv_type": kv_type,
            "expert_layers_on_cpu": pair.expert_layers,
        }
        settings = LoadSettings(chat_cache_mib=0, threads=default_threads(), **options)
        expected = estimate(target, None if head else draft, head=head, **options)
        with tempfile.TemporaryDirectory() as home:
            os.environ["SLIPSTREAM_HOME"] = home  # a first load, which tries passes up to the widest
            real = measured(pair, settings, paged_out=paged_out, whole=long)
        yield Result(pair.name, files, context, kv_type, expected.system.total, real)


def table(found: Sequence[Result]) -> str:
    lines = ["| model | file | context | KV | estimated | measured | error |", "|---|---|---|---|---|---|---|"]
    for r in found:
        sizes = (
            f"{r.file / MIB:,.0f} | {r.context:,} | {r.kv_type} | {r.estimated / MIB:,.1f} | {r.measured / MIB:,.1f}"
        )
        lines.append(f"| {r.name} | {sizes} | {r.error:+.1%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="How far the memory estimate is from what loading takes")
    parser.add_argument("--folder", type=Path, help="where the models are made; kept if given, else temporary")
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    parser.add_argument("--paged-out", action="store_true", help="count only pages of files that are needed again")
    parser.add_argument("--long", action="store_true", help="longer contexts, filled whole")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="slipstream-memory-"))
    folder.mkdir(parents=True, exist_ok=True)
    backend.start()
    found: list[Result] = []
    try:
        for index, name in enumerate(options.only):
            kinds = cycle(KV_TYPES[index % 3 :] + KV_TYPES[: index % 3])
            for result in results(MODELS[name](folder), kinds, paged_out=options.paged_out, long=options.long):
                found.append(result)
                print(table([result]).splitlines()[-1], flush=True)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
    worst = max(found, key=lambda result: abs(result.error))
    print(table(found), f"\nworst: {worst.error:+.1%} ({worst.name}, context {worst.context:,})", sep="\n")
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in found], indent=1))


if __name__ == "__main__":
    main()
