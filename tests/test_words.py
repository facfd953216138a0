"""The words on screen and in the terminal: American spelling, the terms that everything else uses, and no blame."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "app").rglob("*.py"))
LOGGERS = {"log", "_log"}

BRITISH = (
    r"\w*(?:behaviour|cancell(?:ed|ing)|catalogue|centre|colour|favour|honour|labell|licence|modell(?:ed|ing)|neighbour"
    r"|notaris|travell)\w*|(?:grey|learnt|spelt|whilst|programme)s?"
    r"|(?:initiali|normali|optimi|organi|recogni|seriali|summari|quanti|synchroni|tokeni)s(?:e|ed|es|ing|ation)"
)
UNUSUAL = {
    r"with plain|plain (?:answers?|decoding|runs?|speed)": "without a draft",
    r"tokens an? pass": "tokens per pass",
    r"guess(?:es|ed)?": "draft tokens, proposals",
    r"keep on": "always draft",
    r"waits? for a model": "will be sent once a model is loaded",
    r"checksum (?:is )?right": "checksum verified",
    r"by hand": "manually, yourself",
    r"anew": "again",
    r"beside": "next to",
    r"for ever": "forever",
    r"in all$": "in total",
    r"came back changed": "was different when it was read back",
    r"takes? (?:its|the|their) place": "replaces",
    r"no news": "nothing new",
    r"brings (?:along|no)": "comes with, has no",
    r"speaks? protocols?|knows? no": "uses, doesn't know",
    r"oops|sorry|illegal|fatal": "what happened and what to do, without blame",
    r"[\d}] %(?![\w.(])": "68%, without a space",
}
"""What was once on screen, and what to write instead."""


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string that may be shown: none of the documentation, nothing that is logged.

    What a string inserts is ``{}``. A text without a space is a name: of a field, a file or a setting.
    """
    tree = tree_of(path)
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        is_documentation = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_documentation or (isinstance(node, ast.Call) and is_logging(node)):
            skipped.update(ast.walk(node))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            skipped.update(ast.walk(node))
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield node.lineno, text


def is_logging(call: ast.Call) -> bool:
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(receiver, ast.Name) and receiver.id in LOGGERS


def found(pattern: str, shown: Sequence[tuple[str, str]]) -> list[str]:
    words = re.compile(rf"(?<![\w/])(?:{pattern})(?![\w/])" if pattern[0] != "[" else pattern, re.IGNORECASE)
    return [f"{place}: {match[0]!r} in {text!r}" for place, text in shown if (match := words.search(text))]


def test_american_spelling_and_usual_words_on_screen() -> None:
    shown = [(f"{path.relative_to(ROOT)}:{line}", text) for path in SOURCES for line, text in strings(path)]
    assert len(shown) > 1_000
    assert found(BRITISH, shown) == []
    for words, better in UNUSUAL.items():
        assert found(words, shown) == [], f"write instead: {better}"


def test_american_spelling_of_names() -> None:
    """Classes, functions and modules; names on disk and in the protocol may be older."""
    words = re.compile(BRITISH, re.IGNORECASE)
    names = [path.stem for path in SOURCES]
    for path in SOURCES:
        names += [node.name for node in ast.walk(tree_of(path)) if isinstance(node, _NAMED)]
    assert [name for name in names if any(words.fullmatch(part) for part in re.findall(r"[A-Z]?[a-z]+", name))] == []


_NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@pytest.mark.parametrize(
    "pattern", ["*.md", "docs/*.md", "scripts/*", "packaging/*.md", "packaging/windows/*.iss", "packaging/linux/*"]
)
def test_american_spelling_in_texts(pattern: str) -> None:
    words = re.compile(rf"(?<![\w/`])(?:{BRITISH})(?![\w/`])", re.IGNORECASE)
    files = sorted(path for path in ROOT.glob(pattern) if path.is_file())
    assert files
    assert {path.name: match[0] for path in files if (match := words.search(path.read_text("utf-8")))} == {}


def test_the_test_itself_finds_words(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(
        '"""Coloured."""\nshow(f"{x} of the grey guesses")\n_log.info("the colour is %s", x)\nwrite("grey")\n'
    )
    assert list(strings(path)) == [(2, "{} of the grey guesses")]


FIGURE = re.compile(r"[,%]|\.\d+[%ef]")
"""What a format has that makes a figure for people; ``:g`` gives a setting as it is typed."""
WRITTEN_BY_MACHINES = {"app/models/hub/api.py", "app/chats/database.py", "app/storage/files.py"}
"""Times in names of files and on the wire."""


def figures(path: Path) -> Iterator[int]:
    """The lines where a figure is formatted, other than in what is logged."""
    tree = tree_of(path)
    logged = {
        part for node in ast.walk(tree) if isinstance(node, ast.Call) and is_logging(node) for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue) and node.format_spec and node not in logged:
            yield from [node.lineno] if FIGURE.search(ast.unparse(node.format_spec)) else []


def test_figures_are_written_by_one_module() -> None:
    """In one style: ``1.8×``, ``8.2B``, ``1.2 GB``, ``1,204``."""
    found = {path.relative_to(ROOT).as_posix(): list(figures(path)) for path in SOURCES}
    assert found.pop("app/words.py")
    assert {name: lines for name, lines in found.items() if lines and name not in WRITTEN_BY_MACHINES} == {}
    assert all(found[name] for name in WRITTEN_BY_MACHINES)
