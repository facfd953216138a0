"""`benchmarks.gpu_report.cuda`: what CMake is told where parts of CUDA are missing, or in other places."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_report import building, cuda

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the compiler is a shell script here")
needs_a_compiler = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="a library is linked with cc, as for Linux"
)


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where NVIDIA's Python packages are; none are installed."""
    folder = tmp_path / "site-packages" / "nvidia"
    touch(folder / "other" / "lib" / "libother.so")
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder


@pytest.fixture
def toolkit(tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toolkit of CUDA 13 that has its runtime alone; its compiler is started by a script elsewhere."""
    folder = tmp_path / "cuda"
    touch(folder / "lib64" / "libcudart.so.13", folder / "bin" / "nvcc")
    script = tmp_path / "bin" / "nvcc"
    script.parent.mkdir()
    script.write_text(f"""#!/bin/sh
echo '#$ _HERE_={folder}/bin
#$ TOP={folder}/bin/..' >&2
""")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(script.parent), os.environ["PATH"]]))
    return folder


@pytest.fixture
def ggml(tmp_path: Path) -> Path:
    """Sources that call the driver."""
    folder = tmp_path / "ggml"
    touch(folder / "src" / "ggml-cuda" / "common.cuh")
    (folder / "src" / "ggml-cuda" / "ggml-cuda.cu").write_text(
        "cublasCreate(&h); cudaMalloc(&p, n); CU_CHECK(cuMemCreate(&handle, size, &prop, 0)); cuDeviceGet(&d, 0);"
    )
    return folder


@needs_a_compiler
def test_what_the_toolkit_lacks_is_taken_from_python_packages(
    toolkit: Path, packages: Path, ggml: Path, tmp_path: Path
) -> None:
    parts = packages / "cu13"
    touch(parts / "include" / "cublas_v2.h", parts / "lib" / "libcublas.so.13", parts / "lib" / "libcublasLt.so.13")

    told = cuda.options(ggml, tmp_path)
    assert told["CMAKE_CUDA_FLAGS"] == told["CMAKE_CXX_FLAGS"] == f"-I{parts / 'include'}"
    assert told["CUDA_cublas_LIBRARY"] == str(parts / "lib" / "libcublas.so.13")
    assert told["CUDA_cublasLt_LIBRARY"] == str(parts / "lib" / "libcublasLt.so.13")
    driver = ctypes.CDLL(told["CUDA_cuda_driver_LIBRARY"])
    assert driver.cuMemCreate() == driver.cuDeviceGet() == 34
    assert not hasattr(driver, "cublasCreate") and not hasattr(driver, "cudaMalloc")
    assert cuda.library_folders() == [toolkit / "lib64", parts / "lib"]


def test_a_complete_toolkit_is_left_to_cmake(toolkit: Path, ggml: Path, tmp_path: Path) -> None:
    touch(toolkit / "include" / "cublas_v2.h", toolkit / "lib64" / "libcublas.so.13")
    touch(toolkit / "targets" / "x86_64-linux" / "lib" / "stubs" / "libcuda.so")
    told = cuda.options(ggml, tmp_path)
    assert set(told) == {"GGML_CUDA", "GGML_METAL", "CMAKE_CUDA_COMPILER", "CMAKE_CUDA_ARCHITECTURES"}
    assert cuda.library_folders() == [toolkit / "lib64"]


def test_without_a_compiler_there_is_a_sentence(ggml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_compiler", lambda: str(tmp_path / "nothing" / "nvcc"))
    with pytest.raises(SystemExit, match="NVIDIA's compiler is needed"):
        cuda.options(ggml, tmp_path)


def test_a_step_finds_the_libraries_of_cuda(toolkit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")
    assert building.environment("cuda")["LD_LIBRARY_PATH"] == os.pathsep.join(["/elsewhere", str(toolkit / "lib64")])
    assert building.environment("cpu")["LD_LIBRARY_PATH"] == "/elsewhere"
