"""Reads one model file's header in a process of its own and prints what came of it and how much memory it took.

Usage: ``python -m tests.support.header_probe FILE``; prints ``{"outcome": …, "grown": bytes}``.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

from app.models.gguf import ModelFileError, read_header


def peak_memory() -> int:
    """The most memory this process ever had, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def probe(path: Path) -> tuple[str, int]:
    """The sentence about a file (``read`` when there is none) and by how many bytes the memory grew."""
    command = [sys.executable, "-m", "tests.support.header_probe", str(path)]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    return result["outcome"], result["grown"]


def main() -> None:
    before = peak_memory()
    try:
        read_header(sys.argv[1])
        outcome = "read"
    except ModelFileError as error:
        outcome = str(error)
    json.dump({"outcome": outcome, "grown": peak_memory() - before}, sys.stdout)


if __name__ == "__main__":
    main()
