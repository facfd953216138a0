"""Between the settings and what is loaded."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from PySide6.QtWidgets import QWidget

from app.protocol.options import LoadSettings
from app.settings import Pair, Settings
from app.ui import notices
from app.ui.engine.pair_names import PairFiles, guide_files
from app.ui.models.opening import Opening, as_remembered, keep_opened
from tests.ui.models.windows import Windows


def test_each_model_is_loaded_as_it_was_the_last_time() -> None:
    small, large = LoadSettings(context_length=1000), LoadSettings(context_length=9000, kv_type="q8_0")
    values = Settings(load=LoadSettings(threads=3))
    assert as_remembered(values, values.last_pair) == replace(guide_files(), settings=values.load)
    for target, load in (("/small.gguf", small), ("/large.gguf", large), (guide_files().target, small)):
        keep_opened(values, PairFiles(target, None, load))
    assert (values.last_pair, values.load) == (None, LoadSettings(threads=3))
    assert as_remembered(values, values.last_pair) == replace(guide_files(), settings=small)
    assert as_remembered(values, Pair("/small.gguf", "/draft.gguf")) == PairFiles("/small.gguf", "/draft.gguf", small)
    assert as_remembered(values, Pair("/other.gguf")).settings == values.load
    values.remember_pair(Pair("/large.gguf"))
    assert as_remembered(values, values.last_pair) == PairFiles("/large.gguf", None, large)


def test_a_model_on_a_server_is_remembered_without_load_settings() -> None:
    values, files = Settings(), PairFiles("m", server="http://far.example:8000")
    keep_opened(values, files)
    assert values.last_pair == Pair("m", server="http://far.example:8000")
    assert values.recent_pairs == [values.last_pair] and not values.model_loads
    assert as_remembered(values, values.last_pair) == files
    assert files.missing() is None and files.preset_target() == "http://far.example:8000#m"


def test_what_was_downloaded_is_loaded_and_its_notice_goes_when_that_has_begun(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    window, pair, loader = QWidget(), Pair("/m/new.gguf"), windows.ctx.loader
    windows.qtbot.addWidget(window)
    opening = Opening(windows.ctx, window, windows.library)
    done: list[str] = []
    monkeypatch.setattr(loader, "load", lambda files: done.append(files.target))
    monkeypatch.setattr(loader, "load_again", lambda: done.append("again"))
    show = partial(windows.notice_list.show, "downloaded", notices.downloaded("A model", pair))
    show()
    opening.load_downloaded(pair)
    assert (done, windows.notice_list.notices()) == ([pair.target], {})
    show()
    for target in ("/m/another.gguf", pair.target):  # it is loaded in another way
        assert "downloaded" in windows.notice_list.notices()
        monkeypatch.setattr(loader, "files", lambda target=target: PairFiles(target))
        loader.load_begun.emit()
    assert not windows.notice_list.notices()
    opening.load_downloaded(pair)  # it is in use: with what is beside it now
    opening.load_downloaded(Pair(pair.target, "/m/draft.gguf"))
    assert done == [pair.target, "again", pair.target]
