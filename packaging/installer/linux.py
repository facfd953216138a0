"""The ``.deb`` and the ``.tar.gz``: the frozen folder with what desktops read; and a ``.deb`` of the starter model."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

from installer import icons, places, starter
from installer.places import say

_FILES = places.PACKAGING / "linux"
_DPKG_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
_OPTIONAL = re.compile(r"libggml-(cuda|vulkan)\.|libcupsprintersupport\.")
"""Loaded only where the GPU's driver or CUPS is, which bring what they are linked to."""

_RECOMMENDED = {"vulkan": "libvulkan1, "}
"""Packages that such a library needs, and without which the processor does it. This one recommends drivers itself."""


def make(bundle: Path, dist: Path, model: Path | None = None) -> list[Path]:
    """Make the packages of ``bundle`` in ``dist``, and of the starter ``model``; all where Debian's tools are."""
    stage = places.WORK / "stage"
    shutil.rmtree(stage, ignore_errors=True)
    packages = [_archive(bundle, stage / "archive", dist, model)]
    if shutil.which("dpkg-shlibdeps") is None:
        say("no .deb is made: dpkg-dev is not installed")
        return packages
    packages.append(_debian_package(bundle, stage / "debian", dist))
    if model is not None:
        packages.append(_starter_package(model, stage / "starter", dist))
    return packages


# ---------------------------------------------------------------- what desktops read


def write_shared(share: Path) -> None:
    """Desktop entry, metainfo, MIME type and icons below ``share``, where the system looks for them."""
    name = places.application_id()
    released = time.strftime("%Y-%m-%d", time.gmtime(places.commit_time()))
    metainfo = (_FILES / f"{name}.metainfo.xml.in").read_text("utf-8")
    metainfo = metainfo.replace("@VERSION@", places.version()).replace("@DATE@", released)
    _put(share / "metainfo" / f"{name}.metainfo.xml", metainfo)
    _put(share / "applications" / f"{name}.desktop", (_FILES / f"{name}.desktop").read_text("utf-8"))
    _put(share / "mime" / "packages" / f"{name}.xml", (_FILES / f"{name}.mime.xml").read_text("utf-8"))
    icons.write_hicolor(icons.SVG, share / "icons" / "hicolor")


def make_plain(root: Path) -> None:
    """Modes and times as every machine would make them: the owner's umask and when a library was built show in none."""
    seconds = places.commit_time()
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if runs else 0o644)
        os.utime(path, (seconds, seconds), follow_symlinks=False)


def _put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


# ---------------------------------------------------------------- .tar.gz


def _archive(bundle: Path, stage: Path, dist: Path, model: Path | None = None) -> Path:
    top = stage / f"slipstream-{places.version()}"
    shutil.copytree(bundle, top, symlinks=True)
    if model is not None:
        starter.lay_out(model, top / starter.BESIDE_THE_PROGRAM)
    write_shared(top / "share")
    shutil.copy2(_FILES / "desktop-integration", top)
    make_plain(top)
    package = dist / f"slipstream-{places.version()}-linux-{places.machine()}{places.suffix()}.tar.gz"
    say(f"packing {package.name}")
    with (
        package.open("wb") as file,
        gzip.GzipFile("", "wb", 9, file, mtime=places.commit_time()) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in (top, *sorted(top.rglob("*"))):
            tar.add(path, str(path.relative_to(stage)), recursive=False, filter=_anonymous)
    return package


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """``entry`` as every machine would make it, after `make_plain`."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = int(entry.mtime)  # else a header more for each file
    return entry


# ---------------------------------------------------------------- .deb


def _debian_package(bundle: Path, stage: Path, dist: Path) -> Path:
    root = stage / "root"
    program = root / "usr" / "lib" / "slipstream"
    shutil.copytree(bundle, program, symlinks=True)
    write_shared(root / "usr" / "share")
    (root / "usr" / "bin").mkdir()
    (root / "usr" / "bin" / "slipstream").symlink_to("../lib/slipstream/slipstream")
    _write_documents(root / "usr" / "share")
    architecture = _DPKG_ARCHITECTURES[places.machine()]
    values = {
        "VERSION": places.version(),
        "ARCHITECTURE": architecture,
        "SIZE": str(_installed_kib(root)),
        "DEPENDS": _dependencies(program, stage),
        "RECOMMENDS": _RECOMMENDED.get(places.backend(), ""),
    }
    package = dist / f"slipstream{places.suffix()}_{places.version()}_{architecture}.deb"
    # Level 9 sees that llama.cpp's variants are alike.
    return _built(root, _FILES / "control.in", values, package, level=9)


def _starter_package(model: Path, stage: Path, dist: Path) -> Path:
    root = stage / "root"
    starter.lay_out(model, root / "usr" / "share" / "slipstream-starter")
    documents = root / "usr" / "share" / "doc" / "slipstream-starter"
    documents.mkdir(parents=True)
    shutil.copyfile(starter.COPYRIGHT, documents / "copyright")
    values = {"VERSION": places.version(), "SIZE": str(_installed_kib(root))}
    package = dist / f"slipstream-starter_{places.version()}_all.deb"
    return _built(root, _FILES / "control-starter.in", values, package, level=6)  # more makes it no smaller


def _built(root: Path, control: Path, values: dict[str, str], package: Path, *, level: int) -> Path:
    """The ``package`` of what is in ``root``, with the ``values`` in ``control``."""
    written = re.sub("@([A-Z]+)@", lambda name: values[name[1]], control.read_text("utf-8"))
    _put(root / "DEBIAN" / "control", written)
    make_plain(root)
    say(f"packing {package.name}")
    # One thread: with more the blocks, and so the file, would depend on how many there are.
    options = ["--root-owner-group", "--threads-max=1", "-Zxz", f"-z{level}"]
    places.run(["dpkg-deb", *options, "--build", str(root), str(package)], SOURCE_DATE_EPOCH=str(places.commit_time()))
    return package


def _write_documents(share: Path) -> None:
    documents = share / "doc" / "slipstream"
    documents.mkdir(parents=True)
    shutil.copy2(places.ROOT / "LICENSE", documents / "copyright")
    _compress(places.ROOT / "CHANGELOG.md", documents / "changelog.gz")
    manual = share / "man" / "man1"
    manual.mkdir(parents=True)
    _compress(_FILES / "slipstream.1", manual / "slipstream.1.gz")


def _compress(source: Path, destination: Path) -> None:
    destination.write_bytes(gzip.compress(source.read_bytes(), 9, mtime=0))


def _installed_kib(root: Path) -> int:
    """As dpkg-gencontrol counts, so that it does not depend on the file system: a folder's own size would."""
    sizes = (path.lstat().st_size if path.is_symlink() or path.is_file() else 1 for path in root.rglob("*"))
    return sum(-(-size // 1024) for size in sizes)


def _dependencies(program: Path, stage: Path) -> str:
    """The packages that hold the libraries which are not inside, with the versions they are needed in."""
    binaries = [file for file in _binaries(program) if not _OPTIONAL.match(file.name)]
    folders = sorted({str(file.parent) for file in binaries})
    _put(stage / "debian" / "control", "Source: slipstream\n\nPackage: slipstream\nArchitecture: any\n")
    command = ["dpkg-shlibdeps", "-O", "--ignore-missing-info", "--warnings=0", *(f"-l{folder}" for folder in folders)]
    command += [f"-x{package}" for package in _packages_inside(program)]
    command += [f"-e{file}" for file in binaries]
    shown = subprocess.run(command, cwd=stage, capture_output=True, text=True, check=False)
    found = re.search(r"^shlibs:Depends=(.+)$", shown.stdout, re.MULTILINE)
    if not found:
        raise SystemExit(f"dpkg-shlibdeps found no dependencies:\n{shown.stderr}")
    return found[1]


def _packages_inside(program: Path) -> list[str]:
    """Debian's packages whose libraries PyInstaller took along, which therefore need not be installed."""
    libraries = [file.name for file in (program / "_internal").glob("lib*.so*") if not file.is_symlink()]
    command = ["dpkg-query", "--search", *(f"*/{library}" for library in libraries)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)  # it fails for those of wheels
    return sorted({line.partition(":")[0] for line in shown.stdout.splitlines()})


def _binaries(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.is_symlink():
            with file.open("rb") as opened:
                if opened.read(4) == b"\x7fELF":
                    yield file
