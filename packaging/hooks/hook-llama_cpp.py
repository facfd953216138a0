"""PyInstaller: what llama-cpp-python loads by name, which no import tells of.

The scan of libraries finds what ``libllama`` is linked to, but not the variants for processors, which are opened at run
time. All of them go where the package looks: beside it, in ``llama_cpp/lib``.
"""

from pathlib import Path

from PyInstaller.utils.hooks import get_package_paths

_libraries = Path(get_package_paths("llama_cpp")[1]) / "lib"
binaries = [(str(file), "llama_cpp/lib") for file in sorted(_libraries.iterdir())]
excludedimports = ["llama_cpp.server"]
