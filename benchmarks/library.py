"""How long the library takes: a scan of many files, cold and warm, a large header, and a verdict after it.

    python -m benchmarks.library [--files N] [--repeat N] [--json]

The files are small real models; a scan reads headers only, so what they weigh does not count. Cold means without an
index; the disk's cache is warm either way. The large header has 150,000 tokens with merges, as real ones have.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from app.models.gguf import GgufHeader, check_loadable, read_header
from app.models.library.index import summary_of
from app.models.library.library import Library
from app.models.measurements import trials_file
from app.models.pairing import compare
from app.models.ranking import Judge, rank_drafts
from tests.support.gguf_files import bpe_vocabulary, make_model, make_vocabulary_file

FILES, TOKENS = 300, 150_000
TARGETS = {"warm_scan_s": 0.2, "header_s": 0.3, "pair_s": 0.1}
LABELS = {
    "cold_scan_s": "scan, cold",
    "warm_scan_s": "scan, warm",
    "warm_start_s": "index read and scan, warm",
    "rank_s": "drafts ranked",
    "header_s": "large header read, checked, kept",
    "pair_s": "verdict after that, another list",
}


def make_files(folder: Path, count: int) -> None:
    """``count`` models in folders of ten, of four kinds."""
    kinds: list[dict[str, Any]] = [
        {"architecture": "qwen3"},
        {"tokenizer": "gpt2", "architecture": "qwen2"},
        {"layers": 4, "architecture": "llama"},
        {"vocab_size": 600, "architecture": "gemma3"},
    ]
    made = [make_model(folder / f"kind-{index}.gguf", width=32, **kind) for index, kind in enumerate(kinds)]
    for number in range(count):
        path = folder / "models" / f"owner-{number // 50}" / f"repository-{number // 10}" / f"model-{number:03}.gguf"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(made[number % len(made)], path)


def timed(action: Callable[[], object], repeat: int) -> list[float]:
    """Seconds of each of ``repeat`` runs."""
    seconds = []
    for _ in range(repeat):
        begun = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begun)
    return seconds


def measure_scans(folder: Path, files: int, repeat: int) -> dict[str, list[float]]:
    make_files(folder, files)
    index = folder / "library.json"

    def library() -> Library:
        return Library(folder / "models", [], folder)

    def cold() -> None:
        index.unlink(missing_ok=True)
        library().scan()

    found = {"cold_scan_s": timed(cold, max(repeat // 5, 3))}
    warm = library()
    entries = warm.scan()
    assert len(entries) == files
    found["warm_scan_s"] = timed(warm.scan, repeat)
    found["warm_start_s"] = timed(lambda: library().scan(), repeat)
    found["rank_s"] = timed(lambda: rank_drafts(entries[0], entries, trials_file(folder), Judge({})), repeat)
    return found


def measure_header(folder: Path, repeat: int) -> dict[str, list[float]]:
    vocabulary = bpe_vocabulary(TOKENS)
    vocabulary.merges = [
        f"{left} {right}" for left, right in zip(vocabulary.tokens, vocabulary.tokens[1:], strict=False)
    ]
    target = make_model(folder / "target.gguf", vocabulary=vocabulary, width=32, layers=1)
    vocabulary.tokens = [*vocabulary.tokens, "<|one more|>"]
    vocabulary.types = [*vocabulary.types, 1]
    draft = read_header(make_vocabulary_file(folder / "draft.gguf", vocabulary=vocabulary))

    def read() -> GgufHeader:
        header = read_header(target)
        check_loadable(header)
        summary_of(header)
        return header

    header = read()
    assert compare(header, draft).fits
    return {"header_s": timed(read, repeat), "pair_s": timed(lambda: compare(header, draft), repeat)}


def measure(files: int, repeat: int) -> dict[str, Any]:
    """Medians and all values."""
    with tempfile.TemporaryDirectory() as name:
        found = measure_scans(Path(name), files, repeat) | measure_header(Path(name), repeat)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    result: dict[str, Any] = {"files": files, "tokens": TOKENS, "repeat": repeat, "load_average": load}
    for key, seconds in found.items():
        result[key] = {"median": statistics.median(seconds), "all": seconds, "target": TARGETS.get(key)}
    return result


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [f"{'':34} {'median':>8} {'best':>8} {'worst':>8} {'target':>8}"]
    for key, label in LABELS.items():
        one = result[key]
        figures = [one["median"], min(one["all"]), max(one["all"])]
        target = f"{one['target']:6.3f} s" if one["target"] else ""
        lines.append(f"{label:34} " + " ".join(f"{figure:6.3f} s" for figure in figures) + f" {target}")
    lines.append(f"{result['files']} files, {result['tokens']:,} tokens, load average {result['load_average']}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time of scans, headers and verdicts")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    result = measure(options.files, max(options.repeat, 1))
    if not options.json:
        print(table(result))
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
