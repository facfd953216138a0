"""Answers in Markdown and attached files that are made to do harm."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication, QImage

from app.chats.transfer import content_of
from app.helper import READING_SECONDS, Helper
from app.system import KnownError
from app.ui.chat.images import image_file
from tests.helper import documents, files_to_read
from tests.proof.conftest import Proof
from tests.proof.damage import check_sentence, damaged
from tests.support.command_line import ROOT

pytestmark = [pytest.mark.timeout(4 * 3600), pytest.mark.allow_logs]

AT_A_TIME = 500
"""Texts of one process: what they leave in it can't add up for ever."""


def test_hostile_answers(proof: Proof) -> None:
    """In the real transcript, which a step of 20 seconds or a crash would end."""
    wanted, shown, longest, over = proof.count(20, 250, 3000), 0, [0.0, 0.0], 0
    while shown < wanted:
        options = ["--texts", str(min(AT_A_TIME, wanted - shown)), "--first", str(shown), "--seed", str(proof.seed)]
        command = [sys.executable, "-m", "benchmarks.hostile_view", "--json", *options]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 0, done.stderr
        figures = json.loads(done.stdout)
        shown += figures["texts"]
        longest = max(longest, [figures["longest_cpu_ms"], figures["longest_ms"]])
        over += figures["over_100_ms_cpu"]
        proof.progress(f"{shown} of {wanted}")
    proof.found(
        f"{shown} hostile answers shown; longest step {longest[1]:.0f} ms ({longest[0]:.0f} ms on the processor), "
        f"{over} steps over 100 ms on the processor"
    )


def _sources(folder: Path) -> list[Path]:
    """Sound files of all kinds."""
    body = "".join(files_to_read.paragraph(f"Paragraph {number}") for number in range(20))
    texts: dict[str, bytes] = {
        "report.pdf": files_to_read.pdf([f"Page {number} (of 5)" for number in range(5)]),
        "letter.docx": files_to_read.docx(body + files_to_read.item("An item", 1)),
        "table.xlsx": documents.xlsx({"Tea": "".join(documents.row(n, A="tea", B=n / 7) for n in range(1, 60))}),
        "talk.pptx": documents.pptx({"A": documents.shape("Tea", kind="title")}, ["A"]),
        "letter.odt": documents.odf("text", "<text:p>Tea</text:p>" * 50),
        "book.epub": documents.epub(["one", "two"]),
        "letter.rtf": rb"{\rtf1\ansi\ansicpg932 " + rb"\'83e\par {\b tea}\intbl a\cell\row " * 50 + b"}",
        "cells.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": "1", "outputs": []}] * 50}).encode(),
        "page.html": b"<html><head><title>T</title></head><body>" + b"<p>Hello <b>you</b></p>" * 50 + b"</body></html>",
        "equations.docx": files_to_read.docx(f"<w:p><m:oMath>{files_to_read.EQUATION * 20}</m:oMath></w:p>"),
        "formulas.html": b"<html><p>x<math><mfrac><mi>a</mi><mn>2</mn></mfrac></math><table><tr><td>1</table>" * 20,
        "mail.eml": files_to_read.MAIL,
        "gbk.csv": "品名,数量\n红茶,三十\n".encode("gbk") * 50,
        "table.csv": b"a,b,c\n" * 100,
        "code.py": b"def f():\n    return 1\n" * 50,
        "chats.json": (ROOT / "tests" / "data" / "imports" / "chatgpt.json").read_bytes(),
    }
    for name, data in texts.items():
        (folder / name).write_bytes(data)
    image = QImage(64, 48, QImage.Format.Format_RGB32)
    image.fill(0x336699)
    for kind in ("png", "jpg", "bmp"):
        assert image.save(str(folder / f"picture.{kind}"))
    files_to_read.bomb(folder / "bomb.docx", 50_000_000)
    with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
        archive.write(folder / "code.py", "../code.py")
    return sorted(folder.iterdir())


@pytest.mark.qt_log_level_fail("CRITICAL")  # Qt warns of damaged pictures
def test_hostile_attachments(proof: Proof, tmp_path: Path, qapp: QGuiApplication) -> None:
    """Each is read, or refused with a sentence; the reading process never dies of one but by its limits."""
    wanted, outcomes = proof.count(60, 500, 2000), Counter[str]()
    (tmp_path / "sound").mkdir()
    sources = [(path, path.read_bytes()) for path in _sources(tmp_path / "sound")]
    helper = Helper(READING_SECONDS)
    try:
        for number in range(wanted):
            path, data = proof.chance.choice(sources)
            name = proof.chance.choice((path.name, path.name, "any.pdf", "any.docx", "any.png", "any", "any.html"))
            file = tmp_path / name
            file.write_bytes(damaged(data, proof.chance))
            with proof.naming(f"{path.name} as {name}, {number}"):
                outcomes[_outcome(file, helper)] += 1
            file.unlink()
            proof.progress(f"{number + 1} of {wanted}: {dict(outcomes)}")
    finally:
        helper.stop()
    assert outcomes["died"] == 0
    proof.found(f"{wanted} hostile files attached: " + ", ".join(f"{n} {what}" for what, n in outcomes.items() if n))


def _outcome(file: Path, helper: Helper) -> str:
    try:
        image = image_file(file, helper)
        if image is None:
            content_of(str(file), file.name, helper)
    except KnownError as error:
        text = str(error)
        check_sentence(text)
        if "ended unexpectedly" in text:
            return "died"
        return "stopped by a limit" if "takes too long" in text or "too much memory" in text else "refused"
    return "read"
