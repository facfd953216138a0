"""What a machine without a network needs besides the repository: llama.cpp's sources, and wheels.

The total that travels is what git would add of the repository, and this pack; it has to stay below `LIMIT_BYTES`. What
an earlier call brought back (results, built libraries) is added, so that the next machine goes on from there.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "gpu-report"
"""All files of the report; git ignores it."""
PACK = WORK / "pack"
"""The only part of it that travels."""
LIMIT_BYTES = 64 * 1024 * 1024
SOURCES, WHEELS, MANIFEST, RESULTS = "llama-cpp-python.tar.xz", "wheels", "manifest.json", "results.json"
LIBRARIES = re.compile(r"libraries-(\w+)\.tar\.xz\.\d\d")
"""Parts of an archive of built libraries; the group is the backend."""

_NEEDED = (
    *("diskcache", "filelock", "jinja2", "markupsafe", "msgspec", "platformdirs", "psutil", "typing_extensions"),
    *("gguf", "pyyaml", "requests", "tqdm"),
    *("pytest", "iniconfig", "packaging", "pluggy", "pygments"),
)
"""Packages that the engine and its benchmarks import, without NumPy, which is larger than all of them together."""
_GLIBC = ("2_28", "2_27", "2_17", "2_12")
_BACKENDS = {"ggml-blas", "ggml-cpu", "ggml-cuda", "ggml-hip", "ggml-metal", "ggml-vulkan"}
_UPSTREAM = Path("vendor/llama.cpp")
_PARTS = (
    *("CMakeLists.txt", "LICENSE", "cmake", "include", "src", "tools/mtmd"),
    *("ggml/CMakeLists.txt", "ggml/cmake", "ggml/include"),
)
_UNUSED = {"cpp-httplib", "__pycache__", "test-1.jpeg", "test-2.mp3", "test-3.mp4", "legacy-models"}


def pack(python: str, machine: str, *, with_numpy: bool) -> int:
    """Make `PACK` for a Linux machine with that version of Python; returns the bytes that will travel.

    Raises `SystemExit` if all together is too large.
    """
    shutil.rmtree(PACK, ignore_errors=True)
    PACK.mkdir(parents=True)
    _pack_sources(PACK / SOURCES)
    _download_wheels(PACK / WHEELS, python, machine, with_numpy=with_numpy)
    manifest = {"commit": _commit(), "date": datetime.now(UTC).isoformat(timespec="seconds"), "python": python}
    (PACK / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return _report()


def add(earlier: Path) -> int:
    """Add results and built libraries that an earlier call brought back to `PACK`; returns the bytes that will travel.

    Libraries are left out if all together would be too large: they can be built again. Raises `SystemExit` if there is
    nothing to add.
    """
    if not (PACK / MANIFEST).is_file():
        raise SystemExit("There is no pack yet to add to.")
    files = [file for file in sorted(earlier.iterdir()) if file.name == RESULTS or LIBRARIES.fullmatch(file.name)]
    if not files:
        raise SystemExit(f"{earlier} has neither {RESULTS} nor libraries.")
    for file in files:
        shutil.copyfile(file, PACK / file.name)
    if sum(_tree_sizes()) + size_of(PACK) > LIMIT_BYTES:
        print("The libraries are too large to travel, so they will be built again.")
        for file in PACK.iterdir():
            if LIBRARIES.fullmatch(file.name):
                file.unlink()
    return _report()


def _report() -> int:
    tree, packed = sum(_tree_sizes()), size_of(PACK)
    print(f"repository  {tree / 2**20:6.1f} MiB")
    print(f"pack        {packed / 2**20:6.1f} MiB in {PACK}")
    for file in sorted(PACK.iterdir()):
        print(f"  {file.name:28} {size_of(file) / 2**20:6.1f} MiB")
    print(f"total       {(tree + packed) / 2**20:6.1f} MiB of {LIMIT_BYTES / 2**20:.0f}")
    if tree + packed > LIMIT_BYTES:
        raise SystemExit(f"{(tree + packed) / 2**20:.1f} MiB is more than can travel to a lent machine.")
    return tree + packed


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return path.stat().st_size if path.is_file() else sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


def _tree_sizes() -> Iterator[int]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            yield (ROOT / name).lstat().st_size


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


# ---------------------------------------------------------------- sources


def _source() -> Path:
    """llama-cpp-python's unpacked source distribution, which packages are made of, too."""
    sys.path.append(str(ROOT / "packaging"))
    from installer import native

    return native.source()


def _pack_sources(path: Path) -> None:
    source = _source()
    upstream = source / _UPSTREAM
    ggml = [part for part in (upstream / "ggml" / "src").iterdir() if part.is_file() or part.name in _BACKENDS]
    vendored = [part for part in (upstream / "vendor").iterdir() if part.name not in _UNUSED]
    _archive(
        path,
        source,
        [source / "llama_cpp", source / "PKG-INFO", *(upstream / part for part in _PARTS), *ggml, *vendored],
    )


def _archive(path: Path, base: Path, parts: Sequence[Path]) -> None:
    with tarfile.open(path, "w:xz") as archive:
        for part in sorted(parts):
            archive.add(part, part.relative_to(base), filter=_without_caches)


def _without_caches(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _UNUSED & set(Path(info.name).parts) else info


# ---------------------------------------------------------------- wheels


def _download_wheels(folder: Path, python: str, machine: str, *, with_numpy: bool) -> None:
    platforms = [f"manylinux_{version}_{machine}" for version in _GLIBC] + [f"manylinux2014_{machine}"]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", python, "--implementation", "cp"]
    command += [option for name in platforms for option in ("--platform", name)]
    command += ["-c", str(ROOT / "constraints.txt"), "-d", str(folder)]
    subprocess.run([*command, *_NEEDED, *(["numpy"] if with_numpy else [])], check=True)
