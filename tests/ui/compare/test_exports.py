"""Reports written to files, and read back."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QObject
from PySide6.QtGui import QColor, QImage
from pytestqt.qtbot import QtBot

from app.compare.results import Report, Setup
from app.errors import Canceled
from app.protocol.events import ModelInfo, PairLoaded
from app.storage.files import with_suffix
from app.ui.compare.exports import SCALE, WIDTH, Exporter, draw
from app.ui.compare.tab import FORMATS
from app.ui.widgets.theme import LIGHT
from tests.ui.compare.samples import comparison, report
from tests.ui.parts import WAIT_MS

OTHER = ("One", " small", " draught")


@pytest.fixture
def pair(tmp_path: Path) -> PairLoaded:
    target, draft = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    target.write_bytes(b"GGUF" + bytes(3 << 20))
    draft.write_bytes(b"GGUF draft")
    return PairLoaded(
        request=1, target=ModelInfo(path=str(target), name="t"), draft=ModelInfo(path=str(draft), name="d")
    )


@pytest.fixture
def owner(qtbot: QtBot) -> QObject:
    return QObject()


def export(qtbot: QtBot, owner: QObject, found: Report, pair: PairLoaded, path: Path) -> str:
    """Export and wait; gives back why it failed."""
    exporter = Exporter(owner)
    with qtbot.waitSignal(exporter.ended, timeout=WAIT_MS) as ended:
        exporter.export(found, pair, path)
        assert exporter.is_busy()
    assert not exporter.is_busy()
    exporter.shut_down()
    assert ended.args is not None
    assert ended.args[0] == path
    return str(ended.args[1])


def sha256(model: ModelInfo) -> str:
    return hashlib.sha256(Path(model.path).read_bytes()).hexdigest()


@pytest.mark.parametrize("suffix", FORMATS.values())
def test_every_format_is_written_whole_with_the_hashes(
    qtbot: QtBot, owner: QObject, pair: PairLoaded, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"comparison{suffix}"
    path.write_bytes(b"what was there before")
    found = report(comparison("code"), comparison("story", other=OTHER))
    assert export(qtbot, owner, found, pair, path) == ""
    assert pair.draft is not None
    if suffix == ".png":
        image = QImage(str(path))
        assert image.width() == WIDTH * SCALE
        assert image.height() == draw(report()).height()
        assert image.pixelColor(2, 2) == LIGHT.surface
        return
    text = path.read_text(encoding="utf-8")
    if suffix == ".csv":
        rows = list(csv.reader(text.splitlines()))
        assert len(rows) == 3
        assert len({len(row) for row in rows}) == 1
    else:
        assert sha256(pair.target) in text
        assert sha256(pair.draft) in text
    if suffix == ".json":
        value = json.loads(text)
        assert value["setup"]["target"]["sha256"] == sha256(pair.target)
        assert [one["prompt"]["kind"] for one in value["comparisons"]] == ["code", "story"]
        assert value["comparisons"][1]["difference"]["token"] == 2
    if suffix == ".md":
        assert "story" in text


def test_a_model_that_is_gone_or_on_a_server_costs_its_hash_only(
    qtbot: QtBot, owner: QObject, pair: PairLoaded, tmp_path: Path
) -> None:
    Path(pair.target.path).unlink()
    path = tmp_path / "comparison.json"
    assert export(qtbot, owner, report(), pair, path) == ""
    setup = json.loads(path.read_text(encoding="utf-8"))["setup"]
    assert setup["target"]["sha256"] == ""
    assert setup["draft"]["sha256"]
    far = PairLoaded(request=1, target=ModelInfo(path="", name="A server's model"))
    found = report()
    assert export(qtbot, owner, replace(found, setup=replace(found.setup, draft=None)), far, path) == ""


def test_a_folder_that_is_not_there_or_a_full_disk_is_said(
    qtbot: QtBot, owner: QObject, pair: PairLoaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("no folder")
    failure = export(qtbot, owner, report(), pair, in_the_way / "comparison.md")
    assert failure.startswith(f"The comparison couldn't be exported to {in_the_way / 'comparison.md'}")

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "comparison.csv"
    path.write_bytes(b"before")
    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in export(qtbot, owner, report(), pair, path)
    assert path.read_bytes() == b"before"


def test_shutting_down_in_an_export_gives_it_up(
    qtbot: QtBot, owner: QObject, pair: PairLoaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def hashed(setup: Setup, _pair: PairLoaded, stopped: Callable[[], bool]) -> Setup:
        begun.set()
        while not stopped():
            pass
        raise Canceled

    monkeypatch.setattr("app.ui.compare.exports.hashed", hashed)
    exporter = Exporter(owner)
    with qtbot.assertNotEmitted(exporter.ended):
        exporter.export(report(), pair, tmp_path / "comparison.json")
        begun.wait()
        exporter.shut_down()
        qtbot.waitUntil(exporter._lane.is_idle)
    assert not (tmp_path / "comparison.json").exists()


@pytest.mark.parametrize(
    ("typed", "path"),
    [("a", "a.png"), ("a.png", "a.png"), ("a.PNG", "a.PNG"), ("a.b", "a.b.png"), (".png", ".png.png")],
)
def test_the_suffix_is_put_behind_what_was_typed(typed: str, path: str) -> None:
    assert with_suffix(Path("x") / typed, ".png") == Path("x") / path


def test_the_picture_has_all_kinds_and_grows_with_them(qtbot: QtBot) -> None:
    few = draw(report(comparison("code")))
    many = draw(report(*(comparison(f"kind {number}", kept=0.1 * number) for number in range(9))))
    assert many.height() > few.height()
    colors = {many.pixelColor(x, y).name() for x in range(0, many.width(), 2) for y in range(0, many.height(), 2)}
    assert {QColor(one).name() for one in LIGHT.series} <= colors
