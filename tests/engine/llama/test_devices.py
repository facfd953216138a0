"""Devices as llama.cpp tells them. GPUs cannot be had here: what is read of one is checked on the processor."""

from __future__ import annotations

import re

import llama_cpp
import psutil
import pytest

from app.engine.llama import backend
from app.engine.llama.devices import CPU, devices, gpu_devices, processor_features


def test_a_device_has_a_name_and_memory() -> None:
    backend.start()
    [processor] = devices(CPU)
    assert processor.name == "CPU" and processor.description
    assert processor.total_bytes >= psutil.virtual_memory().total * 0.99
    assert 0 < processor.free_bytes <= processor.total_bytes


def test_gpus_are_named_by_their_descriptions() -> None:
    backend.start()
    assert gpu_devices() == [device.description for device in devices()]


def test_the_processors_instruction_sets_are_those_of_ggmls_own_report() -> None:
    backend.start()
    report = llama_cpp.llama_print_system_info().decode()
    assert processor_features() == re.findall(r"(\w+) = \w+", report)


def test_what_ggml_reports_of_gpus_is_no_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    report = b"CUDA : ARCHS = 750,860 | USE_GRAPHS = 1 | CPU : AVX2 = 1 | SVE_CNT = 16 | Vulkan : FP16 = 1 | "
    monkeypatch.setattr(llama_cpp, "llama_print_system_info", lambda: report)
    assert processor_features() == ["AVX2", "SVE_CNT"]
    monkeypatch.setattr(llama_cpp, "llama_print_system_info", lambda: b"")
    assert processor_features() == []


@pytest.mark.parametrize(
    ("library", "variant"),
    [
        ("/opt/a b/libggml-cpu-haswell.so", ", haswell variant"),
        ("/opt/libggml-cpu-armv8.2_1.so", ", armv8.2_1 variant"),
        ("C:\\Programs\\ggml-cpu-x64.dll", ", x64 variant"),
        ("/opt/libggml-cpu.so", ""),
    ],
)
def test_the_variant_is_the_one_that_ggml_says_it_loaded(
    library: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_variant", "")
    backend._on_log(2, f"load_backend: loaded CPU backend from {library}\n".encode(), None)
    assert backend.engine_name() == f"llama.cpp (llama-cpp-python {llama_cpp.__version__}{variant})"
