"""What is in the package, and what must not be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.packaged.clean_system import CleanSystem
from tests.packaged.conftest import BACKEND

MB = 1_000_000
FOR_GPU = 40 * MB if BACKEND == "vulkan" else 0
"""What a package for a GPU may take more; Vulkan's library has 29 MB."""
has_a_limit = pytest.mark.skipif(BACKEND == "cuda", reason="cuBLAS has 600 MB, and architectures decide on the rest")
GPL_ONLY = re.compile(
    r"Qt6?(Charts|Coap|DataVisualization|Graphs|HttpServer|Lottie|Mqtt|NetworkAuth|OpcUa|Protobuf|Grpc|Quick3D|"
    r"QuickTimeline|ShaderTools|VirtualKeyboard|WaylandCompositor)",
    re.IGNORECASE,
)
"""Modules of Qt that are not to be had under the LGPL."""
INSIDE = "/usr/lib/slipstream/_internal"


@pytest.fixture(scope="module")
def inside(installed: CleanSystem) -> Path:
    return installed.path(INSIDE)


@has_a_limit
def test_the_package_is_no_larger_than_promised(deb: Path) -> None:
    assert deb.stat().st_size <= 100 * MB + FOR_GPU


@has_a_limit
def test_the_installed_app_is_no_larger_than_promised(installed: CleanSystem) -> None:
    files = installed.path("/usr/lib/slipstream").rglob("*")
    assert sum(path.lstat().st_size for path in files) <= 275 * MB + FOR_GPU


def test_llama_cpp_runs_on_every_processor(inside: Path) -> None:
    libraries = (inside / "llama_cpp" / "lib").glob("libggml-cpu*.so")
    variants = {path.stem.removeprefix("libggml-cpu-") for path in libraries}
    assert variants >= {"x64", "sse42", "sandybridge", "haswell", "skylakex", "icelake", "alderlake", "zen4"}
    assert "libggml-cpu" not in variants  # what a build for one processor is called


def test_no_library_is_there_twice(inside: Path) -> None:
    real = [path for path in inside.rglob("*.so*") if not path.is_symlink()]
    names = [
        path.name.split(".so")[0] for path in real if path.name.startswith(("libQt6", "libggml", "libllama", "libmtmd"))
    ]
    assert sorted(set(names)) == sorted(names)


def test_it_can_print_where_the_system_has_cups(inside: Path) -> None:
    qt = inside / "PySide6" / "Qt"
    assert (qt / "plugins" / "printsupport" / "libcupsprintersupport.so").is_file()
    assert (qt / "lib" / "libQt6PrintSupport.so.6").exists()
    assert list(inside.rglob("libcups.so*")) == []


def test_it_can_read_images(inside: Path) -> None:
    assert list((inside / "llama_cpp" / "lib").glob("libmtmd.so*"))
    plugins = {path.stem for path in (inside / "PySide6" / "Qt" / "plugins" / "imageformats").iterdir()}
    assert {"libqjpeg", "libqgif", "libqwebp"} <= plugins


def test_nothing_of_qt_is_gpl_only(inside: Path) -> None:
    assert [str(path) for path in inside.rglob("*") if GPL_ONLY.search(path.name)] == []


def test_licenses_are_there(inside: Path) -> None:
    texts = {path.name.lower() for path in (inside / "licences").rglob("*") if path.is_file()}
    assert any("lgpl" in name for name in texts), texts
    assert len(texts) > 10


def test_the_list_of_parts_names_the_large_ones(inside: Path) -> None:
    parts = json.loads((inside / "sbom.cdx.json").read_text(encoding="utf-8"))
    assert parts["bomFormat"] == "CycloneDX"
    names = {part["name"].lower().replace("_", "-") for part in parts["components"]}
    assert {
        "llama.cpp",
        "llama-cpp-python",
        "numpy",
        "defusedxml",
        "pypdfium2",
        "huggingface-hub",
        "h11",
        "httpx2",
        "llguidance",
        "ziamath",
        "stix two math",
    } <= names
    assert any("pyside6" in name for name in names)
    (llguidance,) = (part for part in parts["components"] if part["name"] == "llguidance")
    assert {"toktrie", "derivre", "regex-syntax"} <= {part["name"] for part in llguidance["components"]}


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("stix-two-math", "SIL OPEN FONT LICENSE"),
        ("llama.cpp", "stb_image"),
        ("llguidance", "regex-syntax"),
    ],
)
def test_the_licenses_of_what_is_inside_other_parts_are_there(inside: Path, part: str, text: str) -> None:
    texts = [file.read_text("utf-8", "replace") for file in (inside / "licences" / part).iterdir()]
    assert any(text.lower() in one.lower() for one in texts)


def test_nothing_tells_where_it_was_built(inside: Path) -> None:
    here = str(Path(__file__).resolve().parents[2]).encode()
    libraries = (inside / "llama_cpp" / "lib").glob("*.so")
    assert [path.name for path in libraries if here in path.read_bytes()] == []
