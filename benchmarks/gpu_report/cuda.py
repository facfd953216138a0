"""CUDA's compiler and libraries: where they are on a machine, and what CMake has to be told about them.

cuBLAS may be in NVIDIA's Python packages alone, which PyTorch brings, and a machine that only builds has no driver.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

_DRIVER_FUNCTION = re.compile(r"\bcu[A-Z]\w+(?=\()")
_NO_DRIVER = 34
"""CUDA_ERROR_STUB_LIBRARY."""


def library_folders() -> list[Path]:
    """Where the libraries are that a build for CUDA loads."""
    found = [next(iter(_find(f"lib*/{name}.so*")), None) for name in ("libcudart", "libcublas")]
    return list(dict.fromkeys(library.parent for library in found if library))


def options(ggml: Path, work: Path) -> dict[str, str]:
    """CMake's options. ``ggml`` has the sources; what has to be made is put into ``work``.

    Raises `SystemExit` without a compiler.
    """
    toolkit = _toolkit()
    if toolkit is None:
        raise SystemExit(f"{_compiler()} is missing: to build for CUDA, NVIDIA's compiler is needed.")
    told = {
        "GGML_CUDA": "ON",
        "GGML_METAL": "OFF",
        "CMAKE_CUDA_COMPILER": _compiler(),
        "CMAKE_CUDA_ARCHITECTURES": _architecture(),
    }
    header = next(iter(_find("include/cublas_v2.h")), None)
    if header and toolkit not in header.parents:
        told |= {f"CMAKE_{language}_FLAGS": f"-I{header.parent}" for language in ("CUDA", "CXX")}
        for name in ("cublas", "cublasLt"):
            told[f"CUDA_{name}_LIBRARY"] = str(next(iter(header.parents[1].glob(f"lib*/lib{name}.so*"))))
    if not list(toolkit.glob("**/stubs/libcuda.so")):
        told["CUDA_cuda_driver_LIBRARY"] = str(_driver_to_link_with(ggml, work))
    return told


def _compiler() -> str:
    """NVIDIA's; in the usual place if the system isn't told where it is."""
    return shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def _architecture() -> str:
    """Of this machine's GPU only, or the build takes ten times as long."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "native"
    return ";".join(sorted({line.strip().replace(".", "") for line in done.stdout.splitlines()})) or "native"


def _toolkit() -> Path | None:
    """The folder that the compiler works with; what is found may be a script that starts the compiler."""
    try:
        # The file needn't exist: the folders are said first.
        said = subprocess.run([_compiler(), "-v", "nothing.cu"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return None
    top = re.search(r"^#\$ TOP=(.+)$", said, re.MULTILINE)
    return Path(top[1].strip()).resolve() if top else None


def _find(pattern: str) -> list[Path]:
    """Files in the toolkit and in NVIDIA's Python packages, in this order."""
    packages = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (packages.submodule_search_locations or [])] if packages else []
    folders = [_toolkit(), *(folder for place in places for folder in sorted(place.glob("*")))]
    return [file for folder in folders if folder for file in sorted(folder.glob(pattern))]


def _driver_to_link_with(ggml: Path, work: Path) -> Path:
    """A library with the driver's name and the functions that llama.cpp uses, which all fail.

    Where there is a driver, that is the one that is loaded.
    """
    sources = (ggml / "src" / "ggml-cuda").glob("*.cu*")
    names = {name for file in sources for name in _DRIVER_FUNCTION.findall(file.read_text(encoding="utf-8"))}
    code, library = work / "driver.c", work / "libcuda.so"
    code.write_text("".join(f"int {name}(void) {{ return {_NO_DRIVER}; }}\n" for name in sorted(names)))
    compile_it = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*compile_it, str(code), "-o", str(library)], check=True)
    return library
