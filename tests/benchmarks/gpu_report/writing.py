from __future__ import annotations
from pathlib import Path
from tests.benchmarks.gpu_report.results import Results
def write(results: Results, page: Path) -> None: ...
