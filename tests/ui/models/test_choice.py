"""The choice of models: what needs a reload."""

from __future__ import annotations

from dataclasses import replace

from app.protocol.options import LoadSettings
from app.ui.models.choice import OpenModelsChoice

CHOICE = OpenModelsChoice(target="target.gguf", draft="draft.gguf")


def test_only_files_and_load_settings_need_other_models() -> None:
    assert CHOICE.same_models(replace(CHOICE, accept="rejection"))
    assert not CHOICE.same_models(replace(CHOICE, draft=None))
    assert not CHOICE.same_models(replace(CHOICE, target="other.gguf"))
    assert not CHOICE.same_models(replace(CHOICE, load=LoadSettings(context_length=512)))
