"""Builds llama.cpp from the pack, once for the processor and once for the GPU, and keeps what was built.

    python -m benchmarks.gpu_report.building cpu|cuda|vulkan|metal [FOLDER]

A *site* is a folder with llama-cpp-python and the libraries of one backend, for ``PYTHONPATH``. A backend called
``installed`` is whatever the interpreter finds by itself.
"""

from __future__ import annotations

import email
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from benchmarks.gpu_report import cuda
from benchmarks.gpu_report.packing import LIBRARIES, MANIFEST, PACK, ROOT, SOURCES, WHEELS, WORK

INSTALLED = "installed"
BACKENDS = ("cuda", "vulkan", "metal", "cpu", INSTALLED)
_PART_BYTES = 15 * 1024 * 1024
"""Of an archive of libraries: a file that comes back from a lent machine has at most 16 MiB."""
_LIBRARY = re.compile(r"^lib(ggml|llama|mtmd)[\w.-]*\.(so|dylib)(\.\d+)*$")
_OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "ON",
    # What was built goes on to the next machine, whose processor may be another one.
    "GGML_NATIVE": "OFF",
    "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
    "CMAKE_INSTALL_RPATH": "@loader_path" if sys.platform == "darwin" else "$ORIGIN",
    # A compiler may link its own libstdc++ into each library; exported, they would be mixed with the one of Python's
    # modules, and loading any model crashes.
    **({"CMAKE_SHARED_LINKER_FLAGS": "-Wl,--exclude-libs,ALL"} if sys.platform == "linux" else {}),
    "LLAMA_BUILD_MTMD": "ON",
    "MTMD_VIDEO": "OFF",
    **{f"LLAMA_BUILD_{part}": "OFF" for part in ("COMMON", "TESTS", "TOOLS", "EXAMPLES", "SERVER", "APP", "UI")},
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
}


def site(backend: str) -> Path:
    """Where llama-cpp-python is with the libraries of ``backend``."""
    return WORK / f"site-{backend}"


def is_built(backend: str) -> bool:
    """Whether `site` is complete."""
    return backend == INSTALLED or (site(backend) / "llama_cpp").is_dir()


def environment(backend: str) -> dict[str, str]:
    """For a Python process that uses the libraries of ``backend``."""
    folders = [ROOT] if backend == INSTALLED else [ROOT, site(backend), WORK / WHEELS]
    own = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    made = {**os.environ, "PYTHONPATH": os.pathsep.join(own), "PYTHONUNBUFFERED": "1"}
    if backend == "cuda":  # not every system is told where CUDA's libraries are
        known = filter(None, [os.environ.get("LD_LIBRARY_PATH")])
        made["LD_LIBRARY_PATH"] = os.pathsep.join([*known, *map(str, cuda.library_folders())])
    return made


def unpack() -> None:
    """Unpack wheels, and the libraries that an earlier call has built. Raises `SystemExit` without a pack."""
    if not (PACK / SOURCES).is_file():
        raise SystemExit(f"{PACK / SOURCES} is missing: run `scripts/gpu-report pack` where there is a network.")
    packed = json.loads((PACK / MANIFEST).read_text(encoding="utf-8"))["python"]
    if packed != f"{sys.version_info.major}.{sys.version_info.minor}":
        raise SystemExit(
            f"The pack is for Python {packed}: use that, or run `scripts/gpu-report pack --python VERSION`."
        )
    if not (WORK / WHEELS).is_dir():  # this process may have loaded libraries from there
        for wheel in sorted((PACK / WHEELS).glob("*.whl")):
            zipfile.ZipFile(wheel).extractall(WORK / WHEELS)
    if not (WORK / WHEELS / "numpy").is_dir() and importlib.util.find_spec("numpy") is None:
        raise SystemExit("This Python has no NumPy: run `scripts/gpu-report pack --numpy`.")
    for backend in {found[1] for file in PACK.iterdir() if (found := LIBRARIES.fullmatch(file.name))}:
        if not is_built(backend):
            _unpack_libraries(backend)


def _unpack_libraries(backend: str) -> None:
    parts = sorted(file for file in PACK.iterdir() if (m := LIBRARIES.fullmatch(file.name)) and m[1] == backend)
    with tempfile.TemporaryFile() as whole:
        for part in parts:
            whole.write(part.read_bytes())
        whole.seek(0)
        folder = WORK / f"libraries-{backend}"
        shutil.rmtree(folder, ignore_errors=True)
        with tarfile.open(fileobj=whole, mode="r:xz") as archive:
            archive.extractall(folder)
    _make_site(backend, folder)


def start(backend: str, out: Path | None) -> subprocess.Popen[bytes]:
    """Start building, and packing the libraries into ``out``, in the background; what it says is in the log."""
    with log(backend).open("ab") as output:
        command = [sys.executable, "-m", __spec__.name, backend, *([str(out)] if out else [])]
        return subprocess.Popen(
            command, cwd=ROOT, env=environment(backend), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )


def log(backend: str) -> Path:
    """Where the build of ``backend`` says what it does."""
    return WORK / f"build-{backend}.log"


# ---------------------------------------------------------------- in the build's process


def build(backend: str) -> None:
    """Build what is missing; an interrupted build goes on where it was."""
    source = WORK / "source"
    if not source.is_dir():
        part = Path(tempfile.mkdtemp(dir=WORK))
        with tarfile.open(PACK / SOURCES) as archive:
            archive.extractall(part)
        try:
            part.rename(source)
        except OSError:  # the other build was quicker
            shutil.rmtree(part)
    work = WORK / f"build-{backend}"
    options = [f"-D{name}={value}" for name, value in (_OPTIONS | _options(backend)).items()]
    options += shlex.split(os.environ.get("CMAKE_ARGS", ""))
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    subprocess.run(
        ["cmake", "-S", str(source / "vendor" / "llama.cpp"), "-B", str(work), *generator, *options], check=True
    )
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 2)
    subprocess.run(["cmake", "--build", str(work), "--target", "llama", "mtmd", f"--parallel={jobs}"], check=True)
    _make_site(backend, work / "bin")


def _options(backend: str) -> dict[str, str]:
    if backend == "cuda":
        return cuda.options(WORK / "source" / "vendor" / "llama.cpp" / "ggml", WORK)
    return {
        "cpu": {"GGML_METAL": "OFF"},
        "metal": {"GGML_METAL": "ON", "GGML_METAL_EMBED_LIBRARY": "ON"},
        "vulkan": {"GGML_METAL": "OFF", "GGML_VULKAN": "ON"},
    }[backend]


def _make_site(backend: str, libraries: Path) -> None:
    """llama-cpp-python with the ``libraries`` in a folder; complete or not there."""
    part = WORK / f"site-{backend}.part"
    shutil.rmtree(part, ignore_errors=True)
    package = part / "llama_cpp"
    with tarfile.open(PACK / SOURCES) as archive:
        members = [member for member in archive.getmembers() if member.name.startswith(("llama_cpp", "PKG-INFO"))]
        archive.extractall(part, members)
    _add_metadata(part, part / "PKG-INFO")
    (package / "lib").mkdir(exist_ok=True)
    for file in sorted(libraries.iterdir()):
        if _LIBRARY.match(file.name):
            shutil.copy2(file, package / "lib" / file.name, follow_symlinks=False)
    if not any(package.glob("lib/libllama.*")):
        raise SystemExit(f"{libraries} has no libllama.")
    shutil.rmtree(site(backend), ignore_errors=True)
    part.rename(site(backend))


def _add_metadata(folder: Path, information: Path) -> None:
    """As pip would, for those who ask for the version."""
    version = email.message_from_bytes(information.read_bytes())["Version"]
    metadata = folder / f"llama_cpp_python-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    information.rename(metadata)


def pack_libraries(backend: str, folder: Path) -> None:
    """Write what was built to ``folder``, in parts, for the pack of the next call."""
    libraries = site(backend) / "llama_cpp" / "lib"
    with tempfile.TemporaryFile() as whole:
        with tarfile.open(fileobj=whole, mode="w:xz", preset=3) as archive:
            for file in sorted(libraries.iterdir()):
                archive.add(file, file.name)
        whole.seek(0)
        for number in range(100):
            if not (data := whole.read(_PART_BYTES)):
                break
            (folder / f"libraries-{backend}.tar.xz.{number:02}").write_bytes(data)


def main() -> None:
    backend, *out = sys.argv[1:]
    build(backend)
    if out:
        pack_libraries(backend, Path(out[0]))


if __name__ == "__main__":
    main()
