"""The bill of materials of a bundle."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from installer import sbom
from installer.bundle import Bundle

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
