"""All benchmarks, one after the other, each in a process of its own.

    python -m benchmarks [--json FILE]

Measure on a quiet machine: two things that compute at the same time on few cores slow each other many times over.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = ["engine", "transcript", "startup", "library", "download", "ngram", "controller", "second_turn"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    options = parser.parse_args()
    figures = {}
    for name in BENCHMARKS:
        command = [sys.executable, "-m", f"benchmarks.{name}"]
        if options.json is None:
            print(f"\n{name}", flush=True)
            subprocess.run(command, check=True)
        else:
            output = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True).stdout
            figures[name] = json.loads(output)
            print(f"{name} done", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
