"""Slipstream.app signed, notarised where there are credentials, and put into a disk image.

``SLIPSTREAM_APPLE_IDENTITY`` is the signing identity in the keychain (``Developer ID Application: …``); without it the
app is signed ad hoc, which runs on this machine and, after the user has allowed it, on others.
``SLIPSTREAM_APPLE_API_KEY`` (a .p8 file), ``SLIPSTREAM_APPLE_API_KEY_ID`` and ``SLIPSTREAM_APPLE_API_ISSUER`` let
Apple's notary service check it.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from installer import places
from installer.places import run

ENTITLEMENTS = places.PACKAGING / "macos" / "entitlements.plist"
_MACH_O = {bytes.fromhex(magic) for magic in ("feedface", "feedfacf", "cefaedfe", "cffaedfe", "cafebabe", "cafebabf")}
_AD_HOC = "-"


def make(app: Path, dist: Path) -> list[Path]:
    """The disk image made of ``app``. Raises `CalledProcessError` if signing, Apple's check or a tool fails."""
    notary = Notary.from_environment()
    image = dist / f"slipstream-{places.version()}-macos-{places.machine()}{places.suffix()}.dmg"
    identity = os.environ.get("SLIPSTREAM_APPLE_IDENTITY", "")
    sign_app(app, identity or _AD_HOC)
    if identity and notary:
        notary.check_app(app)
    places.say(f"packing {image.name}")
    _make_image(app, image)
    if identity:
        run(["codesign", "--force", "--timestamp", "--sign", identity, str(image)])
        if notary:
            notary.check(image)
    return [image]


# ---------------------------------------------------------------- signing


def sign_app(app: Path, identity: str) -> None:
    """Sign everything in ``app``, from the inside out, and check the result."""
    for path in inside_out(app):
        run(sign_command(path, identity))
    run(sign_command(app, identity))
    run(["codesign", "--verify", "--strict", "--deep", "--verbose=1", str(app)])


def sign_command(path: Path, identity: str) -> list[str]:
    """How one file or bundle is signed. Only what is started gets entitlements; ad hoc there is no hardened runtime,
    which would refuse libraries that no team has signed."""
    hardened = identity != _AD_HOC
    options = ["--options", "runtime", "--timestamp"] if hardened else ["--timestamp=none"]
    if hardened and (path.suffix == ".app" or path.parent.name == "MacOS"):
        options += ["--entitlements", str(ENTITLEMENTS)]
    return ["codesign", "--force", "--sign", identity, *options, str(path)]


def inside_out(app: Path) -> list[Path]:
    """What is signed by itself before ``app`` is: libraries, frameworks around them, then programs.

    The app's main program is not among them; it is signed with the app.
    """
    contents = app / "Contents"
    files = [path for path in _files(contents) if _is_mach_o(path)]
    programs = [path for path in files if path.parent == contents / "MacOS"]
    frameworks = [path for path in contents.rglob("*.framework") if path.is_dir() and not path.is_symlink()]
    libraries = [path for path in files if path not in programs]
    main = contents / "MacOS" / "slipstream"
    return [*_deepest_first([*libraries, *frameworks]), *(path for path in sorted(programs) if path != main)]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode))


def _is_mach_o(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in _MACH_O


def _deepest_first(paths: list[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (-len(path.parts), path))


# ---------------------------------------------------------------- Apple's notary service


@dataclass(frozen=True)
class Notary:
    """Access to Apple's notary service: a key of App Store Connect."""

    key: str
    key_id: str
    issuer: str

    @classmethod
    def from_environment(cls) -> Notary | None:
        """None where no key is given. Ends with a sentence if it is given by halves."""
        variables = [f"SLIPSTREAM_APPLE_API_{part}" for part in ("KEY", "KEY_ID", "ISSUER")]
        values = [os.environ.get(name, "") for name in variables]
        if not any(values):
            return None
        if not all(values):
            raise SystemExit(f"All of these must be set for notarization: {', '.join(variables)}.")
        return cls(*values)

    def check_app(self, app: Path) -> None:
        """Have an app checked and staple the ticket to it, so that it starts without a network."""
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "Slipstream.zip"
            # It keeps the links in frameworks; a zip that follows them breaks the signature (PyInstaller issue 8927).
            run(["ditto", "-c", "-k", "--keepParent", str(app), str(archive)])
            self._submit(archive)
        run(["xcrun", "stapler", "staple", str(app)])

    def check(self, image: Path) -> None:
        """The same for a disk image."""
        self._submit(image)
        run(["xcrun", "stapler", "staple", str(image)])

    def _submit(self, path: Path) -> None:
        access = ["--key", self.key, "--key-id", self.key_id, "--issuer", self.issuer]
        run(["xcrun", "notarytool", "submit", str(path), *access, "--wait", "--timeout", "30m"])


# ---------------------------------------------------------------- disk image


def _make_image(app: Path, image: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder) / "Slipstream"
        stage.mkdir()
        run(["ditto", str(app), str(stage / app.name)])
        (stage / "Applications").symlink_to("/Applications")
        image.parent.mkdir(parents=True, exist_ok=True)
        form = ["-volname", "Slipstream", "-fs", "HFS+", "-format", "UDZO"]
        run(["hdiutil", "create", "-ov", *form, "-srcfolder", str(stage), str(image)])
