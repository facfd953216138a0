"""Presets in their file: names, defaults, what a failure leaves."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from app.chats.presets import Presets
from app.chats.settings import ChatSettings
from app.protocol.answering import SamplingChoice
from app.system import KnownError

BRIEF = ChatSettings(system_prompt="Be brief.", sampling=SamplingChoice(temperature=0.2), stop=["END"])
LONG = ChatSettings(max_tokens=4000, overflow="keep_ends", drafter="none", seed=3)
MODEL = "/m/one\udcff.gguf"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "presets.json"


def named(settings: ChatSettings | None) -> str:
    assert settings is not None
    return settings.preset


def test_without_a_file_there_are_none_and_nothing_is_written(path: Path) -> None:
    presets = Presets(path)
    assert (presets.names(), presets.default_name(MODEL), presets.notice) == ([], "", None)
    assert presets.default_for(MODEL) == ChatSettings()
    assert presets.get("Brief") is None
    assert not path.exists()


def test_what_was_saved_is_there_the_next_time(path: Path) -> None:
    presets = Presets(path)
    assert presets.save("  Long\n answers ", LONG) == "Long answers"
    assert presets.save("brief", BRIEF) == "brief"
    presets.set_default("LONG ANSWERS")
    presets.set_default("brief", MODEL)
    for one in (presets, Presets(path)):
        assert one.names() == ["brief", "Long answers"]
        assert named(one.get("BRIEF")) == "brief"
        assert one.default_name() == one.default_name("/m/two.gguf") == "Long answers"
        assert (one.default_name(MODEL), one.own_default_name("/m/two.gguf")) == ("brief", "")
        default = one.default_for(MODEL)
        assert (default.system_prompt, default.sampling, default.stop) == ("Be brief.", BRIEF.sampling, ["END"])
        assert one.default_for().overflow == "keep_ends"


def test_names_are_unique_whatever_their_capitals(path: Path) -> None:
    presets = Presets(path)
    presets.save("Brief", BRIEF)
    with pytest.raises(KnownError, match="already a preset named “Brief”"):
        presets.save("BRIEF", LONG)
    assert named(presets.get("brief")) == "Brief"
    assert presets.save("bRIEF", LONG, replace=True) == "Brief"
    assert presets.names() == ["Brief"]
    changed = presets.get("Brief")
    assert changed is not None and changed.max_tokens == 4000


def test_renaming_keeps_the_defaults(path: Path) -> None:
    presets = Presets(path)
    presets.save("Brief", BRIEF)
    presets.save("Long", LONG)
    presets.set_default("Brief")
    presets.set_default("Brief", MODEL)
    assert presets.rename("brief", "BRIEF") == "BRIEF"
    assert (presets.default_name(), presets.default_name(MODEL)) == ("BRIEF", "BRIEF")
    with pytest.raises(KnownError, match="“Long”"):
        presets.rename("BRIEF", "long")
    with pytest.raises(KnownError, match="no longer a preset named “gone”"):
        presets.rename("gone", "other")
    assert Presets(path).names() == ["BRIEF", "Long"]


def test_what_was_deleted_is_no_default_and_there_may_be_none(path: Path) -> None:
    presets = Presets(path)
    presets.save("Brief", BRIEF)
    presets.set_default("Brief")
    presets.set_default("brief", MODEL)
    presets.set_default("", MODEL)
    assert Presets(path).own_default_name(MODEL) == ""
    presets.set_default("Brief", MODEL)
    presets.delete("bRIEF")
    assert (presets.names(), presets.default_name(MODEL), presets.default_for()) == ([], "", ChatSettings())
    with pytest.raises(KnownError, match="no longer a preset"):
        presets.delete("Brief")
    with pytest.raises(KnownError, match="no longer a preset"):
        presets.set_default("Brief")


def test_a_value_that_makes_no_sense_costs_only_itself_and_stays_in_the_file(path: Path) -> None:
    brief = {"seed": -1, "system_prompt": "Be brief.", "sampling": {"top_p": 7, "top_k": 3}, "theme": "dusk"}
    numbers = dict.fromkeys(("seed", "max_tokens", "thinking_budget"), 2**64)
    huge = {**numbers, "sampling": dict.fromkeys(SamplingChoice.__struct_fields__, 2**64), "stop": ["x"]}
    content = {"version": 1, "presets": {"Brief": brief, "Huge": huge}, "default": "gone"}
    path.write_text(json.dumps(content), encoding="utf-8")
    presets = Presets(path)
    expected = ChatSettings(preset="Brief", system_prompt="Be brief.", sampling=SamplingChoice(top_k=3))
    assert presets.get("Brief") == expected
    assert presets.get("Huge") == ChatSettings(preset="Huge", stop=["x"])
    assert presets.default_for() == ChatSettings()
    presets.save("Long", LONG)
    assert Presets(path).get("Long") is not None
    assert json.loads(path.read_text(encoding="utf-8"))["presets"]["Huge"]["seed"] == 2**64


def test_a_broken_file_is_put_aside(path: Path) -> None:
    path.write_text("{", encoding="utf-8")
    presets = Presets(path)
    (aside,) = path.parent.glob("presets.broken-*.json")
    assert presets.notice is not None and str(aside) in presets.notice
    presets.save("Brief", BRIEF)
    assert (Presets(path).names(), Presets(path).notice) == (["Brief"], None)


def test_a_newer_file_is_left_alone(path: Path) -> None:
    before = '{"version": 2, "presets": {"Brief": {}}}'
    path.write_text(before, encoding="utf-8")
    presets = Presets(path)
    assert presets.notice is not None and "newer version of Slipstream" in presets.notice
    with pytest.raises(KnownError, match="newer version of Slipstream"):
        presets.save("Long", LONG)
    assert presets.names() == ["Long"]  # until Slipstream ends
    assert path.read_text(encoding="utf-8") == before


def test_a_save_that_fails_leaves_the_file_and_counts_until_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    presets = Presets(path)
    presets.save("Brief", BRIEF)
    before = path.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(KnownError, match="The presets couldn't be saved: No space left on device"):
            presets.save("Long", LONG)
    assert (path.read_bytes(), presets.names()) == (before, ["Brief", "Long"])


def test_files_come_and_go(path: Path, tmp_path: Path) -> None:
    presets = Presets(path)
    presets.save("Brief", BRIEF)
    file = tmp_path / "brief.json"
    presets.export_file("brief", file)
    read = presets.import_file(file)
    assert (read.name, read.remark()) == ("Brief 2", "")
    copy = presets.get("Brief 2")
    assert copy is not None and (copy.system_prompt, copy.stop) == ("Be brief.", ["END"])
    with pytest.raises(KnownError, match="no longer a preset"):
        presets.export_file("gone", file)
    with pytest.raises(KnownError, match=r"nowhere couldn't be written|brief\.json couldn't be written"):
        presets.export_file("Brief", tmp_path / "nowhere" / "brief.json")


def test_a_preset_has_tools_but_never_folders(path: Path, tmp_path: Path) -> None:
    here = ChatSettings(tools=[".calculate", "gone.search"], folders=[str(tmp_path)])
    presets = Presets(path)
    presets.save("Mine", here)
    assert str(tmp_path) not in path.read_text(encoding="utf-8")
    expected = ChatSettings(preset="Mine", tools=[".calculate", "gone.search"])
    assert presets.get("Mine") == Presets(path).get("Mine") == expected
    assert not presets.is_changed(ChatSettings(preset="Mine", tools=here.tools, folders=here.folders))
    assert presets.is_changed(ChatSettings(preset="Mine", folders=here.folders))
    file = tmp_path / "mine.json"
    presets.export_file("Mine", file)
    assert "folders" not in json.loads(file.read_text(encoding="utf-8"))["settings"]
    content = {"format": "slipstream-preset", "version": 1, "settings": {"tools": None, "folders": ["/"]}}
    file.write_text(json.dumps(content), encoding="utf-8")
    read = presets.import_file(file)
    assert read.settings == ChatSettings() and presets.get(read.name) == ChatSettings(preset=read.name)


def test_a_file_with_folders_in_a_preset_gives_none(path: Path) -> None:
    path.write_text(json.dumps({"version": 1, "presets": {"Old": {"seed": 3}, "Bad": {"folders": ["/"]}}}))
    presets = Presets(path)
    assert presets.get("Old") == ChatSettings(preset="Old", seed=3)  # of a version without tools
    assert presets.get("Bad") == ChatSettings(preset="Bad")
