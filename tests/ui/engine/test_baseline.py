"""Speeds without a draft of models on servers; those of files are in `tests.models.test_measurements`."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from app.models.measurements import plain_speeds
from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.options import LoadSettings, Sampling
from app.protocol.remote import RemoteModel, Server
from app.ui.shell.speed_presenter import Baseline


def pair_of(model: str) -> PairLoaded:
    server = Server(kind="ollama", address="http://127.0.0.1:11434", is_loopback=True)
    return PairLoaded(request=1, target=ModelInfo(path="", name=model), remote=RemoteModel(server=server, model=model))


def test_each_model_of_a_server_has_its_own(qtbot: QtBot, tmp_path: Path) -> None:
    owner = QObject()
    baseline = Baseline(plain_speeds(tmp_path), owner)
    found: list[float | None] = []
    baseline.record(pair_of("large"), LoadSettings(), Sampling(), 5.0)
    for model in ("large", "small"):
        baseline.find(pair_of(model), LoadSettings(), Sampling(), found.append)
    assert found == [5.0, None]
    baseline.close()
