"""llama.cpp's libraries as they go into the package."""

from __future__ import annotations

from pathlib import Path

import pytest
from installer import native

BUILT = ("libggml-base.so.0.25.3", "libllama.so.0.5.0", "libmtmd.so.0.5.0")


def build_of(folder: Path, *more: str) -> Path:
    """A build's ``bin``: libraries with the links CMake makes, variants without, and what is no library of ours."""
    for name in BUILT:
        (folder / name).write_bytes(name.encode())
        middle, plain = name.rsplit(".", 2)[0], name.split(".so")[0] + ".so"
        (folder / middle).symlink_to(name)
        (folder / plain).symlink_to(middle)
    for name in ("libggml-cpu-x64.so", "libggml-cpu-sapphirerapids.so", "libvendor-hash.a", "llama-cli", *more):
        (folder / name).write_bytes(name.encode())
    return folder


def test_each_library_is_there_once_and_its_plain_name_is_a_link(tmp_path: Path) -> None:
    """All but the variant that dies of its compiler."""
    built, folder = tmp_path / "bin", tmp_path / "lib"
    built.mkdir()
    folder.mkdir()
    native._collect(build_of(built), folder)
    files = sorted(file.name for file in folder.iterdir() if not file.is_symlink())
    assert files == ["libggml-base.so.0", "libggml-cpu-x64.so", "libllama.so.0", "libmtmd.so.0"]
    links = {file.name: str(file.readlink()) for file in folder.iterdir() if file.is_symlink()}
    assert links == {name: f"{name}.0" for name in ("libggml-base.so", "libllama.so", "libmtmd.so")}
    assert (folder / "libllama.so").read_bytes() == b"libllama.so.0.5.0"


def test_a_build_without_llama_is_no_build(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "libggml.so").touch()
    (tmp_path / "lib").mkdir()
    with pytest.raises(SystemExit, match="libllama"):
        native._collect(tmp_path / "bin", tmp_path / "lib")


def test_no_build_is_for_this_machine_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "source", lambda: tmp_path)
    for backend in ("cpu", "cuda", "metal", "vulkan"):
        monkeypatch.setenv("SLIPSTREAM_BACKEND", backend)
        options = native._options()
        wanted = {"GGML_NATIVE": "OFF", "GGML_BACKEND_DL": "ON", "GGML_CPU_ALL_VARIANTS": "ON"}
        assert wanted.items() <= options.items()
        assert (options.get("GGML_CUDA"), options.get("GGML_VULKAN")) == (
            "ON" if backend == "cuda" else None,
            "ON" if backend == "vulkan" else None,
        )
