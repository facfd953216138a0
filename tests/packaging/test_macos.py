"""What macOS is told, and the order of signing, on an app in outline."""

from __future__ import annotations

import plistlib
from pathlib import Path

import pytest
from installer import info_plist, macos

from app import __version__

MACH_O = bytes.fromhex("cffaedfe") + bytes(28)


def test_info_survives_as_a_property_list() -> None:
    info = plistlib.loads(plistlib.dumps(info_plist.info_plist()))
    assert info["CFBundleIdentifier"] == "app.slipstream.Slipstream"
    assert info["CFBundleShortVersionString"] == info["CFBundleVersion"] == __version__
    assert info["LSMinimumSystemVersion"] == "13.0"
    assert info["NSHighResolutionCapable"] is True
    (document,), (declared,) = info["CFBundleDocumentTypes"], info["UTImportedTypeDeclarations"]
    assert document["LSHandlerRank"] == "Alternate", "models can be opened, and are not taken over"
    assert document["LSItemContentTypes"] == [declared["UTTypeIdentifier"]]
    assert declared["UTTypeTagSpecification"] == {"public.filename-extension": ["gguf"]}


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """Folders and links as PyInstaller lays them out."""
    contents = tmp_path / "Slipstream.app" / "Contents"
    for name in (
        "MacOS/slipstream",
        "MacOS/helper",
        "Frameworks/Python.framework/Versions/3.11/Python",
        "Frameworks/PySide6/Qt/lib/QtCore.framework/Versions/A/QtCore",
        "Frameworks/llama_cpp/lib/libggml.0.dylib",
    ):
        path = contents / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(MACH_O)
    (contents / "Frameworks/llama_cpp/lib/libggml.dylib").symlink_to("libggml.0.dylib")
    (contents / "Resources").mkdir()
    (contents / "Resources/llama_cpp").symlink_to("../Frameworks/llama_cpp")
    (contents / "Resources/catalog.json").write_text("{}", encoding="ascii")
    (contents / "Info.plist").write_bytes(b"")
    return contents.parent


def test_everything_is_signed_once_and_from_the_inside_out(app: Path) -> None:
    order = [str(path.relative_to(app / "Contents")) for path in macos.inside_out(app)]
    assert len(set(order)) == len(order)
    qt, python = "Frameworks/PySide6/Qt/lib/QtCore.framework", "Frameworks/Python.framework"
    assert order.index(f"{qt}/Versions/A/QtCore") < order.index(qt)
    assert order.index(f"{python}/Versions/3.11/Python") < order.index(python)
    assert "Frameworks/llama_cpp/lib/libggml.0.dylib" in order
    assert order[-1] == "MacOS/helper"
    assert not [name for name in order if name.endswith((".json", "libggml.dylib", "Info.plist", "MacOS/slipstream"))]


def test_only_what_is_started_gets_entitlements() -> None:
    identity = "Developer ID Application: Somebody"
    library = macos.sign_command(Path("A.app/Contents/Frameworks/lib.dylib"), identity)
    program = macos.sign_command(Path("A.app/Contents/MacOS/helper"), identity)
    for command in (library, program):
        assert command[command.index("--options") + 1] == "runtime"
        assert "--deep" not in command
    assert "--entitlements" not in library
    assert str(macos.ENTITLEMENTS) in program
    assert str(macos.ENTITLEMENTS) in macos.sign_command(Path("A.app"), identity)
    assert plistlib.loads(macos.ENTITLEMENTS.read_bytes()) == {}, "no exceptions from the hardened runtime"
    ad_hoc = macos.sign_command(Path("A.app"), "-")
    assert "--options" not in ad_hoc and "--timestamp=none" in ad_hoc


def test_credentials_by_halves_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("KEY", "KEY_ID", "ISSUER"):
        monkeypatch.delenv(f"SLIPSTREAM_APPLE_API_{part}", raising=False)
    assert macos.Notary.from_environment() is None
    monkeypatch.setenv("SLIPSTREAM_APPLE_API_KEY", "key.p8")
    with pytest.raises(SystemExit, match="SLIPSTREAM_APPLE_API_ISSUER"):
        macos.Notary.from_environment()
    monkeypatch.setenv("SLIPSTREAM_APPLE_API_KEY_ID", "ID")
    monkeypatch.setenv("SLIPSTREAM_APPLE_API_ISSUER", "issuer")
    assert macos.Notary.from_environment() == macos.Notary("key.p8", "ID", "issuer")
