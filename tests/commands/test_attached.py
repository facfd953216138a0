"""``generate`` with files before the prompt."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.commands.asking import with_attached
from app.system import KnownError
from tests.helper.files_to_read import pdf
from tests.support.command_line import called
from tests.support.vision_models import make_image


def test_files_stand_before_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one", "utf-8")
    (tmp_path / "b.pdf").write_bytes(pdf(["two"]))
    written = with_attached("Why?", [str(tmp_path / "a.txt"), str(tmp_path / "b.pdf")])
    assert written == "`a.txt`\n\n```\none\n```\n\n`b.pdf`\n\n```\ntwo\n```\n\nWhy?"
    assert with_attached("Why?", []) == "Why?"
    with pytest.raises(KnownError, match=r"^none\.txt can't be read: No such file or directory\.$"):
        with_attached("Why?", [str(tmp_path / "none.txt")])
    result = called("generate", "--prompt", "x", "--attach", tmp_path)
    assert result.returncode == 1
    assert result.stderr.strip().endswith(f"{tmp_path.name} is a folder. Attach the files in it instead.")


def test_what_was_guessed_or_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_bytes("红茶,三十\n".encode("gbk"))
    (tmp_path / "b.log").write_bytes("größe\n".encode() * 9 + bytes(2))
    assert "红茶,三十" in with_attached("Why?", [str(tmp_path / "a.csv"), str(tmp_path / "b.log")])
    assert capsys.readouterr().err == "a.csv: read as GB 18030\nb.log: left out: 2 zero bytes\n"


def test_pictures_have_an_option_of_their_own(tmp_path: Path) -> None:
    make_image(tmp_path / "a.png")
    with pytest.raises(KnownError, match=r"^a\.png is a picture\. Use --image for it\.$"):
        with_attached("Why?", [str(tmp_path / "a.png")])
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:20])
    with pytest.raises(KnownError, match=r"^b\.png is a picture that can't be read\."):
        with_attached("Why?", [str(tmp_path / "b.png")])
