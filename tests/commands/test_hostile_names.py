"""What files say of themselves reaches no terminal as something that it obeys."""

from __future__ import annotations

import io
import sys
import unicodedata
from pathlib import Path

import pytest

from app import cli
from tests.support.gguf_files import make_model, spm_vocabulary
from tests.support.library_parts import small_model

HOSTILE = "\x1b]0;owned\x07\x9b2J\u202egnp.\u2066\u200b\u2028\r"
posix = pytest.mark.skipif(sys.platform == "win32", reason="names that Windows does not allow")


@pytest.fixture
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "USERPROFILE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "user"))
    folder = home / "models" / f"of{HOSTILE}"
    vocabulary = spm_vocabulary()
    vocabulary.pre = HOSTILE
    vocabulary.tokens[1] = HOSTILE
    small_model(folder / f"target{HOSTILE}.gguf", name=f"Target {HOSTILE}", vocabulary=vocabulary)
    small_model(folder / f"draft{HOSTILE}.gguf", name=f"Draft {HOSTILE}", chat_template="{% " + HOSTILE)
    make_model(folder / f"odd{HOSTILE}.gguf", name="odd", architecture=f"odd{HOSTILE}", layers=1, width=32)
    (folder / f"broken{HOSTILE}.gguf").write_bytes(b"no")
    return folder


def obeyed(text: str) -> list[str]:
    """What in ``text`` a terminal obeys."""
    return [one for one in text if one not in "\n\t" and unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


COMMANDS = """
inspect TARGET
inspect TARGET DRAFT
inspect ODD
inspect BROKEN
inspect GONE
models list
models list of\x1b
models inspect TARGET
models pair TARGET
models pair target
models pair ODD
models plan TARGET DRAFT
models plan BROKEN
models verify TARGET
models remove nothing\x1b
generate --target BROKEN --prompt x
generate --target TARGET --draft BROKEN --prompt x --max-tokens 8 --raw
generate --target DRAFT --prompt x --max-tokens 8
models remove TARGET --yes
"""


@posix
@pytest.mark.parametrize("as_json", [False, True])
def test_no_command_shows_what_a_terminal_obeys(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    names = {
        name.upper(): str(folder / f"{name}{HOSTILE}.gguf") for name in ("target", "draft", "odd", "broken", "gone")
    }
    command = ""
    # What the model itself says goes into a file as it is.
    monkeypatch.setattr(sys.stdout, "isatty", lambda: command.startswith("generate"))
    for command in COMMANDS.strip().splitlines():
        words = [names.get(word, word) for word in command.split(" ")]
        cli.run([*words, "--json"] if as_json else words)
        shown = capsys.readouterr()
        assert shown.out + shown.err
        assert (obeyed(shown.out), obeyed(shown.err)) == ([], []), command


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_model_does_not_command_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, file = _Terminal(), io.StringIO()
    for stream in (terminal, file):
        monkeypatch.setattr(sys, "stdout", stream)
        cli._show("red \x1b[31m\n")
    assert terminal.getvalue() == "red \\x1b[31m\n"
    assert file.getvalue() == "red \x1b[31m\n"
