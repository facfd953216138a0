"""Between the settings and what is loaded."""

from __future__ import annotations

from dataclasses import replace

from app.protocol.options import LoadSettings
from app.settings import Pair, Settings
from app.ui.engine.pair_files import PairFiles, guide_files
from app.ui.models.opening import files_at_start, files_to_load, keep_opened


def test_each_model_is_loaded_as_it_was_the_last_time() -> None:
    small, large = LoadSettings(context_length=1000), LoadSettings(context_length=9000, kv_type="q8_0")
    values = Settings(load=LoadSettings(threads=3))
    assert files_at_start(values) == replace(guide_files(), settings=values.load)
    for target, load in (("/small.gguf", small), ("/large.gguf", large), (guide_files().target, small)):
        keep_opened(values, PairFiles(target, None, load))
    assert (values.last_pair, values.load) == (None, LoadSettings(threads=3))
    assert files_at_start(values) == replace(guide_files(), settings=small)
    assert files_to_load(values, "/small.gguf", "/draft.gguf") == PairFiles("/small.gguf", "/draft.gguf", small)
    assert files_to_load(values, "/other.gguf", None).settings == values.load
    values.remember_pair(Pair("/large.gguf"))
    assert files_at_start(values) == PairFiles("/large.gguf", None, large)


def test_a_model_on_a_server_is_remembered_without_load_settings() -> None:
    values, files = Settings(), PairFiles("m", server="http://far.example:8000")
    keep_opened(values, files)
    assert values.last_pair == Pair("m", server="http://far.example:8000")
    assert values.recent_pairs == [values.last_pair] and not values.model_loads
    assert files_at_start(values) == files
    assert files.missing() is None and files.preset_target() == "http://far.example:8000#m"
