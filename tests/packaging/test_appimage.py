"""The AppImage's folder, its image and its joint, with real tools; only the runtime is a stand-in."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from installer import appimage, places

from app import __version__

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="AppImages are Linux's")
needs_squashfs = pytest.mark.skipif(
    not (shutil.which("mksquashfs") and shutil.which("unsquashfs")), reason="squashfs-tools are not installed"
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A frozen app in outline: a program that says where it is and what it was given."""
    folder = tmp_path / "bundle"
    (folder / "_internal").mkdir(parents=True)
    (folder / "_internal" / "libggml.so.0").write_bytes(b"library")
    (folder / "_internal" / "libggml.so").symlink_to("libggml.so.0")
    program = folder / "slipstream"
    program.write_text('#!/bin/sh\nls "$(dirname "$(readlink -f "$0")")/_internal"; echo "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return folder


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A real program with the mark of a type 2 runtime, where ELF has padding."""
    content = bytearray(Path("/bin/true").read_bytes())
    content[8:11] = b"AI\x02"
    path = tmp_path / "runtime"
    path.write_bytes(content)
    return path


def test_the_folder_has_what_appimage_looks_for(tmp_path: Path, bundle: Path) -> None:
    folder = tmp_path / "AppDir"
    appimage.lay_out(folder, bundle)
    assert sorted(path.name for path in folder.iterdir()) == [
        ".DirIcon",
        "AppRun",
        f"{places.application_id()}.desktop",
        f"{places.application_id()}.svg",
        "usr",
    ]
    assert not [path for path in folder.rglob("*") if path.is_symlink() and path.readlink().is_absolute()]
    assert (folder / "usr/lib/slipstream/_internal/libggml.so").is_symlink()
    for start in (folder / "AppRun", folder / "usr/bin/slipstream"):
        answer = subprocess.run([start, "a file.gguf"], capture_output=True, text=True, check=True)
        assert answer.stdout == "libggml.so\nlibggml.so.0\na file.gguf\n"


@pytest.mark.parametrize("content", [None, b"#!/bin/sh\n", b"\x7fELF" + bytes(60)])
def test_what_is_no_runtime_is_refused(
    tmp_path: Path,
    bundle: Path,
    content: bytes | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong, image = tmp_path / "wrong", tmp_path / "image"
    image.write_bytes(b"image")
    if content is not None:
        wrong.write_bytes(content)
    with pytest.raises(SystemExit, match="APPIMAGE_RUNTIME"):
        appimage.join(wrong, image, tmp_path / "result")
    assert not (tmp_path / "result").exists()
    monkeypatch.delenv(appimage.RUNTIME, raising=False)
    assert appimage.make(bundle, tmp_path / "dist") == []
    assert "APPIMAGE_RUNTIME" in capsys.readouterr().out


@needs_squashfs
def test_the_result_runs_carries_the_app_and_is_the_same_each_time(
    tmp_path: Path, bundle: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(appimage.RUNTIME, str(runtime))
    monkeypatch.setenv("SLIPSTREAM_BACKEND", "vulkan")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    (made,) = appimage.make(bundle, tmp_path / "dist")
    assert made.name == f"slipstream-{__version__}-linux-{places.machine()}-vulkan.AppImage"
    assert subprocess.run([made], check=False).returncode == 0
    offset = runtime.stat().st_size
    assert made.read_bytes()[offset : offset + 4] == b"hsqs"
    out = tmp_path / "out"
    subprocess.run(
        ["unsquashfs", "-quiet", "-offset", str(offset), "-dest", out, made], check=True, capture_output=True
    )
    answer = subprocess.run([out / "AppRun", "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "--version"
    (again,) = appimage.make(bundle, tmp_path / "again")
    assert again.read_bytes() == made.read_bytes()
