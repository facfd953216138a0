"""llama.cpp's own benchmark client (``tools/server/bench/speed-bench``), unchanged, against ``slipstream serve``.

The client wants a data set of Hugging Face; a small module of the name ``datasets`` gives it Spec-Bench's questions
instead, with all their turns. What it prints, it prints; with ``--against llama-server`` it asks that. The client needs
the packages requests and tqdm, which are here because others need them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.contestants import running
from benchmarks.llama_cpp_tools import source, tools
from benchmarks.real_contestants import server_command
from benchmarks.real_figures import load_questions, sample
from tests.support.serve_process import serve_process

_BENCH = "qualitative"
_DATASETS = """
import json
import pathlib


class Rows(list):
    def __getitem__(self, key):
        return [row[key] for row in self] if isinstance(key, str) else super().__getitem__(key)


def get_dataset_config_names(repository):
    return ["qualitative"]


def load_dataset(repository, name, split):
    return Rows(json.loads(pathlib.Path(__file__).with_name("questions.json").read_text(encoding="utf-8")))
"""
Result = dict[str, Any]


def speed_bench(target: Path, options: argparse.Namespace) -> Result:
    """Run the client; returns what it has written, besides its exit status."""
    client = source() / "tools" / "server" / "bench" / "speed-bench" / "speed_bench.py"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_questions(folder, options)
        output = folder / "result.json"
        if options.against == "llama-server":
            with running(server_command(tools(), target, options.context, options.threads)) as process:
                status = _run(client, process.address, folder, output, options)
        else:
            served: list[str | Path] = ["--target", target.absolute(), "--context", str(options.context)]
            with serve_process(*served, home=folder / "home") as (_, port):
                status = _run(client, f"http://127.0.0.1:{port}", folder, output, options)
        found = json.loads(output.read_text(encoding="utf-8")) if output.is_file() else {}
    return {"against": options.against, "status": status, **found}


def _write_questions(folder: Path, options: argparse.Namespace) -> None:
    """The questions as the client reads them."""
    known = load_questions(options.questions)
    chosen = known if options.full else sample(known, options.per_kind, options.seed)
    rows = [{"question_id": f"{one.number}", "category": one.kind, "turns": list(one.turns)} for one in chosen]
    (folder / "datasets.py").write_text(_DATASETS, encoding="utf-8")
    (folder / "questions.json").write_text(json.dumps(rows), encoding="utf-8")


def _run(client: Path, address: str, folder: Path, output: Path, options: argparse.Namespace) -> int:
    command = [sys.executable, str(client), "--url", address, "--bench", _BENCH, "--osl", str(options.tokens)]
    command += ["--concurrency", str(options.concurrency), "--output", str(output)]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, check=False, env=environment).returncode


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="all 480 questions")
    parser.add_argument("--per-kind", type=int, default=1, help="questions of each kind")
    parser.add_argument("--tokens", type=int, default=128, help="of an answer, at most")
    parser.add_argument("--concurrency", type=int, default=1, help="requests at once")
    parser.add_argument("--against", choices=("slipstream", "llama-server"), default="slipstream")
