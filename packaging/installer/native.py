"""llama.cpp for processors we have not seen: one library for each kind, chosen when the app starts.

llama-cpp-python's own build makes one library for the machine it runs on (or for the oldest one), and does not install
the variants. So its source distribution is built here, as its authors' CMake files have it, and the libraries are laid
into the installed Python package.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from installer import places
from installer.info_plist import MINIMUM_MACOS
from installer.places import say

_OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "ON",
    "GGML_NATIVE": "OFF",
    "GGML_BACKEND_DL": "ON",
    "GGML_CPU_ALL_VARIANTS": "ON",
    "LLAMA_BUILD_COMMON": "OFF",
    "LLAMA_BUILD_MTMD": "ON",
    # It would look for ffmpeg and start it on what a user attaches.
    "MTMD_VIDEO": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_TOOLS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_SERVER": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
    # Or a second copy of libggml is loaded from elsewhere, and the first model dies.
    "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
    "CMAKE_INSTALL_RPATH": "@loader_path" if sys.platform == "darwin" else "$ORIGIN",
}
_BACKEND_OPTIONS = {
    "cpu": {"GGML_METAL": "OFF"},
    "cuda": {"GGML_CUDA": "ON"},
    "metal": {"GGML_METAL": "ON", "GGML_METAL_EMBED_LIBRARY": "ON"},
    "vulkan": {"GGML_VULKAN": "ON"},
}
_LEFT_OUT = re.compile(r"ggml-cpu-sapphirerapids\.")
"""GCC drops all but the first bytes of what is stored for LDTILECFG, and llama.cpp dies in the first batch of a
quantized model (llama.cpp issue 20824). Those processors run the variant ``zen4``: AVX-512 without AMX."""
_LIBRARY = re.compile(r"^(lib)?(ggml|llama|mtmd)[\w.-]*\.(so|dylib|dll)(\.\d+)*$")


def build() -> Path:
    """The folder with llama.cpp's libraries; it is kept for the next time."""
    options = _options()
    folder = places.cache() / f"llama.cpp-{_key(options)}"
    if not folder.is_dir():
        say(f"building llama.cpp with all variants for processors ({places.backend()}); this takes some minutes")
        _build(options, folder)
    return folder


def install(libraries: Path, destination: Path) -> None:
    """Lay ``libraries`` into the installed package; a library's names of other versions become links to it."""
    shutil.rmtree(destination, ignore_errors=True)
    shutil.copytree(libraries, destination, symlinks=True)


def source() -> Path:
    """llama-cpp-python's unpacked source distribution, in the pinned version; it is kept too."""
    name = f"llama_cpp_python-{_pinned_version()}"
    folder = places.cache() / name
    if not folder.is_dir():
        say("fetching llama-cpp-python's source")
        part = folder.with_name(f"{name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        _download(part)
        places.run(["tar", "-xzf", str(part / f"{name}.tar.gz"), "-C", str(part)])
        (part / name).rename(folder)
        shutil.rmtree(part)
    return folder


def _download(folder: Path) -> None:
    pip = [str(_tools() / "python"), "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
    wanted = f"llama-cpp-python=={_pinned_version()}"
    places.run([*pip, "--no-binary", "llama-cpp-python", "-d", str(folder), wanted])


def _pinned_version() -> str:
    found = re.search(r"^llama_cpp_python==(\S+)$", places.CONSTRAINTS.read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def _options() -> dict[str, str]:
    options = _OPTIONS | _BACKEND_OPTIONS[places.backend()]
    if sys.platform == "darwin":
        options |= {"CMAKE_OSX_DEPLOYMENT_TARGET": MINIMUM_MACOS}
    if sys.platform == "win32":
        options |= {"CMAKE_WINDOWS_EXPORT_ALL_SYMBOLS": "ON"}  # as llama-cpp-python's own build has it
    else:
        # No path of this machine in what is built, nor symbols nobody reads.
        flags = f"-ffile-prefix-map={shlex.quote(str(source()))}=."
        options |= {"CMAKE_C_FLAGS": flags, "CMAKE_CXX_FLAGS": flags}
        if sys.platform != "darwin":
            options |= {"CMAKE_SHARED_LINKER_FLAGS": "-s", "CMAKE_MODULE_LINKER_FLAGS": "-s"}
    for option in os.environ.get("CMAKE_ARGS", "").split():
        name, _, value = option.removeprefix("-D").partition("=")
        options[name] = value
    return options


def _key(options: dict[str, str]) -> str:
    words = [source().name, *sorted(f"{name}={value}" for name, value in options.items())]
    words += [_compiler(), places.machine(), _LEFT_OUT.pattern]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


def _compiler() -> str:
    """Which one it is, in its own words; Windows has none called ``c++``."""
    if sys.platform == "win32":
        return os.environ.get("VCTOOLSVERSION", "")
    command = [*shlex.split(os.environ.get("CXX", "c++")), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _build(options: dict[str, str], folder: Path) -> None:
    work = places.WORK / "llama.cpp"
    shutil.rmtree(work, ignore_errors=True)
    definitions = [f"-D{name}={value}" for name, value in options.items()]
    cmake = str(_tools() / "cmake")
    environment = {
        "PATH": f"{_tools()}{os.pathsep}{os.environ['PATH']}",  # for Ninja
        "GIT_DIR": os.devnull,  # or it would take the commit of a repository around it for its own
    }
    generator = [] if sys.platform == "win32" else ["-G", "Ninja"]
    upstream = source() / "vendor" / "llama.cpp"
    places.run([cmake, "-S", str(upstream), "-B", str(work), *generator, *definitions], **environment)
    jobs = f"--parallel={os.environ.get('CMAKE_BUILD_PARALLEL_LEVEL') or os.cpu_count() or 2}"
    places.run([cmake, "--build", str(work), "--config=Release", jobs], **environment)
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    _collect(work / "bin", part)
    part.rename(folder)


def _tools() -> Path:
    """The programs of an environment with pip, CMake and Ninja: the system's Python may have none of them."""
    tools = places.WORK / "tools"
    programs = tools / ("Scripts" if sys.platform == "win32" else "bin")
    if not any(programs.glob("ninja*")):
        venv.create(tools, clear=True, with_pip=True)
        pip = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        places.run([*pip, "-c", str(places.CONSTRAINTS), "cmake", "ninja"])
    return programs


def _collect(built: Path, folder: Path) -> None:
    """Copy each library once: under the name others link to, with the plain name, which Python opens, as a link."""
    found = [file for file in sorted(built.rglob("*")) if _LIBRARY.match(file.name) and not _LEFT_OUT.search(file.name)]
    for file in found:
        if not file.is_symlink():
            shutil.copy2(file, folder / _linked_name(file, found))
    for file in found:
        if file.is_symlink() and not (folder / file.name).exists():
            (folder / file.name).symlink_to(_linked_name(file.resolve(), found))
    for name in ("llama", "mtmd"):
        if not any(file.name.startswith((f"lib{name}.", f"{name}.")) for file in folder.iterdir()):
            raise SystemExit(f"Building llama.cpp produced no lib{name}.")


def _linked_name(file: Path, found: list[Path]) -> str:
    """Of ``libx.so``, ``libx.so.0`` and ``libx.so.0.1.2`` the middle one, which is what the others were linked to."""
    links = [link.name for link in found if link.is_symlink() and link.resolve() == file]
    return max(links, key=len, default=file.name)
