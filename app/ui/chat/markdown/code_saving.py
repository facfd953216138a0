"""Save a code block as a file, with the extension of its language."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QStandardPaths
from PySide6.QtWidgets import QWidget

from app.errors import KnownError
from app.storage.files import write_export
from app.ui.widgets.questions import ask_where_to_save, warn
from app.ui.widgets.tasks import Lane

_EXTENSIONS = {
    "asm": "asm assembly nasm x86asm",
    "awk": "awk",
    "bat": "bat batch cmd dosbatch",
    "c": "c",
    "clj": "clojure clj",
    "cmake": "cmake",
    "coffee": "coffeescript coffee",
    "cpp": "c++ cpp cxx cc",
    "cs": "c# cs csharp",
    "css": "css",
    "csv": "csv",
    "cu": "cuda cu",
    "d": "d dlang",
    "dart": "dart",
    "diff": "diff patch udiff",
    "elm": "elm",
    "erl": "erlang erl",
    "ex": "elixir ex exs",
    "f90": "fortran f90",
    "fs": "f# fs fsharp",
    "glsl": "glsl",
    "go": "go golang",
    "gradle": "gradle",
    "graphql": "graphql gql",
    "groovy": "groovy",
    "h": "h header",
    "hcl": "hcl",
    "hpp": "hpp",
    "hs": "haskell hs",
    "html": "html htm xhtml",
    "ini": "ini cfg conf",
    "java": "java",
    "jl": "julia jl",
    "js": "javascript js node nodejs mjs",
    "json": "json json5 jsonc",
    "jsonl": "jsonl ndjson",
    "jsx": "jsx",
    "kt": "kotlin kt kts",
    "less": "less",
    "lisp": "lisp commonlisp cl",
    "lua": "lua",
    "m": "objectivec objc objective-c matlab octave",
    "md": "markdown md",
    "ml": "ocaml ml",
    "nim": "nim",
    "nix": "nix",
    "pas": "pascal delphi",
    "php": "php",
    "pl": "perl pl",
    "proto": "protobuf proto",
    "ps1": "powershell ps1 pwsh",
    "py": "python py python3 py3",
    "r": "r rscript",
    "rb": "ruby rb",
    "rs": "rust rs",
    "rst": "rst restructuredtext",
    "sass": "sass",
    "scala": "scala",
    "scm": "scheme scm racket",
    "scss": "scss",
    "sh": "bash sh shell zsh console shell-session sh-session",
    "sol": "solidity sol",
    "sql": "sql mysql postgresql postgres plpgsql sqlite sqlite3 tsql",
    "svelte": "svelte",
    "svg": "svg",
    "swift": "swift",
    "tex": "latex tex",
    "tf": "terraform tf",
    "toml": "toml",
    "ts": "typescript ts",
    "tsv": "tsv",
    "tsx": "tsx",
    "v": "verilog v",
    "vb": "vb vbnet visualbasic",
    "vhdl": "vhdl",
    "vim": "vim viml vimscript",
    "vue": "vue",
    "wat": "wasm wat wast",
    "xml": "xml",
    "yaml": "yaml yml",
    "zig": "zig",
}
_OF_LANGUAGE = {name: extension for extension, names in _EXTENSIONS.items() for name in names.split()}
_WHOLE_NAMES = {"dockerfile": "Dockerfile", "docker": "Dockerfile", "makefile": "Makefile", "make": "Makefile"}


def file_name(language: str) -> str:
    """A name for a file of this language, which a model wrote; never with anything else of it in the name."""
    language = language.strip().lower()
    return _WHOLE_NAMES.get(language) or f"code.{_OF_LANGUAGE.get(language, 'txt')}"


def save_code(parent: QWidget, language: str, code: str, saved: Callable[[], None]) -> None:
    """Ask where to save this code, write it outside the window's thread and call ``saved``; what fails is told."""
    name = file_name(language)
    folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
    data = (code.removesuffix("\n") + "\n").encode("utf-8", "replace")

    def save(path: Path) -> None:
        lane = Lane(parent, "save code")
        lane.submit(
            partial(_write, path, data),
            lambda _: saved(),
            lambda error: warn(parent.window(), "Save code", str(error)),
        )

    ask_where_to_save(parent.window(), "Save code", Path(folder) / name, "Code", save)


def _write(path: Path, data: bytes) -> None:
    try:
        write_export(path, data)
    except OSError as error:
        raise KnownError(f"The code couldn't be saved: {error.strerror or error}.") from error
