"""llama.cpp's own tools, built from the source distribution of the llama-cpp-python that is installed here.

    python -m benchmarks.llama_cpp_tools

The first call downloads 77 MB, which packages are made of, too, and builds for some minutes; later ones find the result
in ``build/llama.cpp``. Sources, backend and CMake options are those of ``scripts/setup``, so that a difference in speed
is one of the programs.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "llama.cpp"
VERSION = importlib.metadata.version("llama-cpp-python")

_TARGETS = ("llama-server", "llama-speculative-simple")
_GENERATOR = "test-llama-archs"
_OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "ON",
    "LLAMA_BUILD_COMMON": "ON",
    "LLAMA_BUILD_TOOLS": "ON",
    "LLAMA_BUILD_SERVER": "ON",
    "LLAMA_BUILD_EXAMPLES": "ON",
    "LLAMA_BUILD_TESTS": "ON",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
}


@dataclass(frozen=True)
class Tools:
    """Where the programs are, and what they were built for."""

    server: Path
    speculative_simple: Path
    backend: str


def backend() -> str:
    """What ``scripts/setup`` built llama.cpp for in this virtual environment: cpu, cuda, metal or vulkan."""
    for name in ("dev", "run"):
        mark = Path(sys.prefix) / f".slipstream-{name}"
        if mark.is_file():
            return mark.read_text(encoding="utf-8").split()[0]
    return os.environ.get("SLIPSTREAM_BACKEND") or ("metal" if sys.platform == "darwin" else "cpu")


def tools() -> Tools:
    """The programs, built where they are missing. Ends the process with the end of the log when that fails."""
    server, speculative_simple = _programs(_TARGETS)
    return Tools(server, speculative_simple, backend())


def generator() -> Path:
    """The program that writes tiny models of all architectures; see `tools`."""
    return _programs((_GENERATOR,))[0]


def _programs(names: Sequence[str]) -> list[Path]:
    build = FOLDER / f"{VERSION}-{backend()}"
    found = _found(build, names)
    if found is None:
        print(f"building {', '.join(names)} in {build}; this takes some minutes", file=sys.stderr, flush=True)
        _build(build, names)
        found = _found(build, names)
    if found is None:
        raise SystemExit(f"llama.cpp was built, but its tools are not in {build / 'bin'}.")
    return found


def _found(build: Path, names: Sequence[str]) -> list[Path] | None:
    programs = [shutil.which(name, path=str(build / "bin")) for name in names]
    return [Path(program) for program in programs if program] if all(programs) else None


def _build(build: Path, names: Sequence[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    environment = {**_with_cmake(), **_flags()}
    options = [f"-D{key}={value}" for key, value in _OPTIONS.items()]
    options += [*_native(backend()), *shlex.split(os.environ.get("CMAKE_ARGS", ""))]
    _run(["cmake", "-S", str(source()), "-B", str(build), "-G", "Ninja", *options], environment)
    _run(["cmake", "--build", str(build), "--target", *names], environment)


def _native(name: str) -> list[str]:
    """As in ``scripts/setup``."""
    if name == "cuda":
        compiler = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        return ["-DGGML_CUDA=ON", f"-DCMAKE_CUDA_COMPILER={compiler}"]
    return {"cpu": ["-DGGML_METAL=OFF"], "metal": ["-DGGML_METAL=ON"], "vulkan": ["-DGGML_VULKAN=ON"]}[name]


def _flags() -> Mapping[str, str]:
    """As in ``scripts/setup``, which says why."""
    cpu = Path("/proc/cpuinfo")
    has = cpu.read_text().split() if cpu.is_file() else []
    without = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" if "amx_tile" in has else ""
    without += " -mno-avx512fp16" if "avx512_fp16" in has else ""
    if not without:
        return {}
    return {name: f"{os.environ.get(name, '')} {without}" for name in ("CFLAGS", "CXXFLAGS")}


def source() -> Path:
    """llama.cpp's source tree, downloaded and unpacked once."""
    sys.path.append(str(ROOT / "packaging"))
    from installer import native

    return native.source() / "vendor" / "llama.cpp"


def _with_cmake() -> Mapping[str, str]:
    """An environment in which CMake and Ninja are found; where the system has none, in the versions pip builds with."""
    if shutil.which("cmake") and shutil.which("ninja"):
        return os.environ
    folder = FOLDER / "cmake"
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    if not shutil.which("ninja", path=str(programs)):
        venv.create(folder, with_pip=True, clear=True)
        constraints = str(ROOT / "constraints.txt")
        python = str(programs / "python")
        _run([python, "-m", "pip", "install", "--quiet", "-c", constraints, "cmake", "ninja"], os.environ)
    return {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"}


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run quietly; what it says is kept in ``build.log``, whose end is shown when it fails."""
    log = FOLDER / "build.log"
    program = shutil.which(command[0], path=environment.get("PATH")) or command[0]
    with log.open("ab") as output:
        result = subprocess.run(
            [program, *command[1:]], check=False, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    if result.returncode != 0:
        end = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
        raise SystemExit(f"{end}\n{' '.join(command[:3])} failed; the whole log is in {log}.")


if __name__ == "__main__":
    built = tools()
    print(built.server, built.speculative_simple, sep="\n")
