"""How fast Slipstream downloads, against ``curl``: the same file from loopback to the same disk, in turns.

    python -m benchmarks.download [--megabytes N] [--repeat N] [--folder FOLDER] [--json]

Slipstream's run includes the checksum and the file being safe on the disk; curl's includes neither. The first turn of
each warms the caches and is not counted. Then a download is cut at ten places: bytes that came twice are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.models.downloads.part import destination
from app.models.downloads.transfer import Backoff, Transfer
from app.models.hub.network import Network, NetworkSettings
from app.models.hub.repository import RemoteFile
from app.models.origins import origins_file
from tests.support.hub_faults import Fault
from tests.support.hub_server import HubServer

REPOSITORY, FILE = "maker/model", "weights.bin"
TARGET = 0.8
CUTS = 10
_LOOPBACK = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}


def serve(source: Path) -> None:
    """A hub in a process of its own, until standard input ends."""
    with HubServer() as hub:
        hub.add(REPOSITORY, {FILE: source})
        file = hub.remote_file(REPOSITORY, FILE)
        print(json.dumps([hub.endpoint, file.commit, file.size, file.sha256]), flush=True)
        sys.stdin.read()


def by_curl(endpoint: str, file: RemoteFile, folder: Path) -> float:
    """Seconds."""
    url = f"{endpoint}/{file.repository}/resolve/{file.commit}/{file.path}"
    path = folder / "curl.bin"
    began = time.perf_counter()
    subprocess.run(["curl", "-sSfL", "-o", str(path), url], check=True)
    seconds = time.perf_counter() - began
    path.unlink()
    return seconds


def by_slipstream(network: Network, file: RemoteFile, folder: Path) -> float:
    """Seconds, checksum and sync included."""
    models = folder / "models"
    transfer = Transfer(network, file, destination(models, file), origins=origins_file(folder), reserve=0)
    began = time.perf_counter()
    transfer.run()
    seconds = time.perf_counter() - began
    shutil.rmtree(models)
    return seconds


def fetched_twice(source: Path, folder: Path) -> int:
    """Bytes the hub sent more than once when the line was cut at `CUTS` places."""
    with HubServer() as hub:
        hub.add(REPOSITORY, {FILE: source})
        file = hub.remote_file(REPOSITORY, FILE)
        hub.faults.add(FILE, *(Fault(cut_at=file.size * (cut + 1) // (CUTS + 1)) for cut in range(CUTS)))
        network = Network(NetworkSettings(endpoint=hub.endpoint))
        models, origins = folder / "models", origins_file(folder)
        transfer = Transfer(
            network, file, destination(models, file), origins=origins, reserve=0, backoff=Backoff(first_seconds=0.01)
        )
        transfer.run()
        network.close()
        shutil.rmtree(models)
        return sum(request.sent for request in hub.bodies(FILE)) - file.size


def measure(megabytes: int, repeat: int, folder: Path) -> dict[str, Any]:
    """Seconds of both, the ratio of their medians, and what came twice."""
    source = folder / "source.bin"
    with source.open("wb") as output:
        for _ in range(megabytes):
            output.write(os.urandom(1_000_000))
    command = [sys.executable, "-m", "benchmarks.download", "--serve", str(source)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        endpoint, commit, size, sha256 = json.loads(server.stdout.readline())
        file = RemoteFile(repository=REPOSITORY, commit=commit, path=FILE, size=size, sha256=sha256)
        network = Network(NetworkSettings(endpoint=endpoint))
        curl, own = [], []
        for _ in range(repeat + 1):
            curl.append(by_curl(endpoint, file, folder))
            own.append(by_slipstream(network, file, folder))
        network.close()
        server.communicate()
    result = {"megabytes": megabytes, "repeat": repeat, "curl_s": curl[1:], "slipstream_s": own[1:], "target": TARGET}
    result["ratio"] = statistics.median(curl[1:]) / statistics.median(own[1:])
    result["fetched_twice"] = fetched_twice(source, folder)
    return result


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [f"{'':24} {'median':>8} {'best':>8} {'worst':>8}"]
    for name in ("curl_s", "slipstream_s"):
        figures = statistics.median(result[name]), min(result[name]), max(result[name])
        lines.append(f"{name[:-2]:24} " + " ".join(f"{figure:6.2f} s" for figure in figures))
    lines.append(f"speed as a part of curl's: {result['ratio']:.2f} (target {result['target']})")
    lines.append(f"bytes fetched twice with {CUTS} cuts: {result['fetched_twice']}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any] | None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Slipstream's downloads against curl's")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure with")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    os.environ.update(_LOOPBACK)
    if options.serve is not None:
        serve(options.serve)
        return None
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = measure(options.megabytes, max(options.repeat, 1), Path(folder))
    if not options.json:
        print(table(result))
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
