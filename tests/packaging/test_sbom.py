"""The bill of materials of a bundle."""

from __future__ import annotations

import hashlib
import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from installer import sbom
from installer.bundle import Bundle
from installer.owners import rust_packages
from installer.places import ROOT

from tests.packaging.small_bundle import COMMIT, SmallBundle, write


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return SmallBundle(tmp_path).write()


def test_it_is_valid_cyclonedx_1_6_and_names_the_app_the_time_and_the_tools(bundle: Bundle) -> None:
    metadata = _written(bundle)["metadata"]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bundle.sbom.read_text("utf-8")) is None
    assert (metadata["component"]["name"], metadata["component"]["version"]) == ("Slipstream", "0.1.0")
    assert metadata["timestamp"] == "2026-11-22T06:51:20+00:00"
    assert ("pyinstaller", "6.22.3") in {(tool["name"], tool["version"]) for tool in metadata["tools"]["components"]}


def test_parts_have_a_package_url_a_license_and_the_checksums_of_their_libraries(bundle: Bundle) -> None:
    parts = {part["name"]: part for part in _written(bundle)["components"]}
    assert list(parts) == sorted(parts)
    assert parts["anyio"]["purl"] == "pkg:pypi/anyio@4.16.0"
    assert parts["anyio"]["licenses"] == [{"expression": "MIT"}]
    llama = parts["llama.cpp"]
    assert llama["purl"] == f"pkg:github/ggml-org/llama.cpp@{COMMIT}"
    library = "_internal/llama_cpp/lib/libllama.so.0"
    digest = hashlib.sha256((bundle.folder / library).read_bytes()).hexdigest()
    assert [(file["name"], file["hashes"]) for file in llama["components"]] == [
        (library, [{"alg": "SHA-256", "content": digest}])
    ]


def test_what_was_compiled_into_a_package_is_part_of_it(tmp_path: Path) -> None:
    file = ROOT / "packaging" / "licences" / "llguidance" / "rust-packages.txt"
    found = {(package.name, package.version): package.license for package in rust_packages(file)}
    assert found["bit-set", "0.5.3"] == found["bit-set", "0.8.0"] == "MIT OR Apache-2.0"
    assert found["tokenizers", "0.21.2"] == "Apache-2.0"
    assert all(re.fullmatch(r"[\w-]+", name) and re.fullmatch(r"[\d.]+", version) for name, version in found)
    small = SmallBundle(tmp_path)
    small.module("llguidance", small.distribution("llguidance", "1.9.1", "License: MIT"))
    parts = {part["name"]: part for part in _written(small.write())["components"]}
    inside = {(part["name"], part.get("version")) for part in parts["llguidance"]["components"]}
    assert set(found) <= inside
    assert {part["purl"] for part in parts["llguidance"]["components"] if "purl" in part} >= {"pkg:cargo/serde@1.0.219"}


def test_the_same_bundle_gives_the_same_bytes_and_another_one_another_number(tmp_path: Path) -> None:
    small = SmallBundle(tmp_path)
    first = _written(small.write())
    assert _written(small.write()) == first
    write(small.contents / "llama_cpp" / "lib" / "libggml-cpu-haswell.so", "another variant")
    assert _written(small.write())["serialNumber"] != first["serialNumber"]


def _written(bundle: Bundle) -> dict[str, Any]:
    sbom.write(bundle, bundle.sbom)
    written: dict[str, Any] = json.loads(bundle.sbom.read_text("utf-8"))
    return written


def test_what_its_own_library_says_is_in_a_package_is_listed() -> None:
    """Rust leaves in a library the paths of sources that may fail."""
    files = metadata.files("llguidance") or []
    (library,) = (Path(str(file.locate())) for file in files if file.suffix in (".so", ".pyd"))
    sources = re.findall(rb"index\.crates\.io-[0-9a-f]+[/\\]([\w-]+?)-(\d+\.\d+\.\d+)[/\\]", library.read_bytes())
    found = {(name.decode(), version.decode()) for name, version in sources}
    file = ROOT / "packaging" / "licences" / "llguidance" / "rust-packages.txt"
    assert len(found) > 20
    assert found <= {(package.name, package.version) for package in rust_packages(file)}
