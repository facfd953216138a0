from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.protocol.commands import Generate
from app.protocol.options import LoadSettings
from app.settings import (
    MAX_MODEL_LOADS,
    MAX_RECENT_PAIRS,
    VERSION,
    Pair,
    ServerSettings,
    Settings,
    SettingsFile,
)
from app.system import KnownError

DATA = Path(__file__).parent / "data"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "settings.json"


def write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_without_a_file_everything_has_its_default_and_nothing_is_written(path: Path) -> None:
    file = SettingsFile(path)
    assert file.values == Settings()
    assert file.notice is None
    assert not path.exists()


def test_defaults_are_those_of_the_engines_messages() -> None:
    settings, request = Settings(), Generate(request=1, messages=[])
    assert settings.draft_length is None
    assert (settings.accept, settings.propose, request.draft_length) == (request.accept, request.propose, "auto")


def test_every_setting_survives_being_saved(path: Path) -> None:
    file = SettingsFile(path)
    changed: dict[str, Any] = {
        "window_geometry": "AdnQ",
        "splitter_state": "AAAA/w==",
        "chats_visible": False,
        "chat_sort": "title",
        "collapsed_folders": ["f1"],
        "open_sections": ["more"],
        "speed_visible": False,
        "side_page": "chat_settings",
        "guide_introduced": True,
        "starter_introduced": True,
        "starter_hidden": True,
        "theme": "dark",
        "zoom": 125,
        "send_with": "ctrl_enter",
        "notify_finished": False,
        "code_wrap": True,
        "drafted_visible": True,
        "draft_length": 16,
        "propose": "greedy",
        "accept": "rejection",
        "load": LoadSettings(context_length=4096, kv_type="q8_0", target_gpu_layers=0),
        "model_loads": {"/m/ü.gguf": LoadSettings(context_length=512), "C:\\m.gguf": LoadSettings()},
        "model_heads": {"/m/ü.gguf": "on", "C:\\m.gguf": "off"},
        "model_templates": {"/m/ü.gguf": "/m/own.jinja", "C:\\m.gguf": "chatml"},
        "built_in_tools": ["calculate"],
        "server": ServerSettings(on=True, port=1234, for_others=True, address="192.168.1.5", hosts=["tower"]),
        "last_pair": Pair("/m/ü.gguf", "/m/d.gguf"),
        "recent_pairs": [Pair("/m/ü.gguf", "/m/d.gguf"), Pair("C:\\m.gguf")],
        "last_chat_id": "abc",
        "models_folder": "/m",
        "extra_folders": ["/ü", "D:\\models"],
        "offline": True,
        "hub_endpoint": "https://mirror.example",
        "token_to_mirror": True,
        "parallel_downloads": 4,
        "most_tool_calls": 7,
    }
    defaults = Settings()
    assert set(changed) == set(Settings.__struct_fields__)
    for name, value in changed.items():
        assert getattr(defaults, name) != value
        setattr(file.values, name, value)
    file.save()
    again = SettingsFile(path)
    assert again.values == Settings(**changed)
    assert again.notice is None


def test_every_setting_is_described() -> None:
    def description(schema: dict[str, Any]) -> object:
        return schema.get("description") or next((d for s in schema.get("anyOf", []) if (d := description(s))), None)

    properties = msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"]
    assert [name for name, schema in properties.items() if not description(schema)] == []


def test_a_value_out_of_range_is_not_saved(path: Path) -> None:
    file = SettingsFile(path)
    file.values.draft_length = 17
    with pytest.raises(msgspec.ValidationError):
        file.save()
    assert not path.exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'{"version": "x"}', b"[" * 100_000, b'{"models_folder": "\xff\xfe"}']
)
def test_a_broken_file_is_put_aside(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    file = SettingsFile(path)
    assert file.values == Settings()
    assert file.notice is not None
    (aside,) = path.parent.glob("settings.broken-*.json")
    assert str(aside) in file.notice
    assert aside.read_bytes() == content
    file.save()
    assert SettingsFile(path).notice is None


def test_one_unusable_value_costs_only_itself(path: Path) -> None:
    load, loads = {"context_length": -5, "threads": 7}, {"/a": {"threads": 3, "kv_type": "q9"}, "/b": 1}
    content = {"draft_length": 99, "load": load, "model_loads": loads, "parallel_downloads": 4, "accept": None}
    write(path, {"version": VERSION, **content})
    file = SettingsFile(path)
    expected = Settings(load=LoadSettings(threads=7), model_loads={"/a": LoadSettings(threads=3)}, parallel_downloads=4)
    assert file.values == expected
    assert file.notice is not None
    assert file.notice.endswith("draft_length, accept, load.context_length, model_loads, model_loads.kv_type.")
    file.save()
    assert SettingsFile(path).notice is None


def test_numbers_that_are_too_large_are_not_used(path: Path) -> None:
    load = {name: 2**64 for name in LoadSettings.__struct_fields__ if name != "kv_type"}
    others = dict.fromkeys(("draft_length", "parallel_downloads", "zoom"), 2**64)
    write(path, {"version": VERSION, "load": load, "unknown": 2**64, **others, "top_k": 1})
    file = SettingsFile(path)
    assert file.values == Settings()
    file.save()
    assert read(path)["unknown"] == 2**64


def test_settings_that_this_version_does_not_know_stay_in_the_file(path: Path) -> None:
    write(path, {"version": VERSION, "colors": {"name": "dusk"}, "load": {"threads": 5, "turbo": 2}})
    file = SettingsFile(path)
    assert file.notice is None
    file.values.draft_length = 6
    file.save()
    file.save()
    saved = read(path)
    assert (saved["version"], saved["colors"], saved["draft_length"]) == (VERSION, {"name": "dusk"}, 6)
    assert (saved["load"]["turbo"], saved["load"]["threads"]) == (2, 5)


def test_a_file_of_a_newer_version_is_used_and_left_alone(path: Path) -> None:
    load = {"threads": 5, "turbo": 2}
    write(path, {"version": VERSION + 1, "load": load, "accept": "typical", "draft_length": "auto", "offline": True})
    before = path.read_bytes()
    file = SettingsFile(path)
    assert file.notice is not None
    assert "newer version of Slipstream" in file.notice and "until you close Slipstream" in file.notice
    assert (file.values.load, file.values.accept, file.values.offline) == (LoadSettings(threads=5), "coupled", True)
    file.values.draft_length = 6
    file.save()
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    before = b'{"version": 99, "seed": 5, "motto": "\xff"}'  # which is no text
    path.write_bytes(before)
    file = SettingsFile(path)
    assert file.values == Settings()
    assert file.notice is not None and "newer version of Slipstream" in file.notice
    file.save()
    assert path.read_bytes() == before


def test_of_saves_in_several_threads_the_last_values_win(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first save is held up in the middle of writing, while the values go on changing."""
    file = SettingsFile(path)
    is_writing, go_on = threading.Event(), threading.Event()
    sync = os.fsync

    def held_up(descriptor: int) -> None:
        if not is_writing.is_set():
            is_writing.set()
            assert go_on.wait(30)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", held_up)
    threads = []
    for length in range(3):
        file.values.draft_length = length
        threads.append(threading.Thread(target=file.save))
        threads[-1].start()
        assert is_writing.wait(30)
    go_on.set()
    for thread in threads:
        thread.join()
    assert SettingsFile(path).values.draft_length == 2


def test_recent_pairs_are_few_newest_first_and_each_once() -> None:
    settings = Settings()
    for number in range(MAX_RECENT_PAIRS + 2):
        settings.remember_pair(Pair(f"/m/{number}.gguf"))
    settings.remember_pair(Pair("/m/5.gguf"))
    assert [pair.target for pair in settings.recent_pairs] == [f"/m/{n}.gguf" for n in (5, 11, 10, 9, 8, 7, 6, 4, 3, 2)]
    assert settings.last_pair == Pair("/m/5.gguf")


def test_each_model_is_loaded_as_it_was_the_last_time() -> None:
    settings = Settings(load=LoadSettings(threads=2))
    for number in range(MAX_MODEL_LOADS + 1):
        settings.remember_load(f"/m/{number}.gguf", LoadSettings(context_length=number))
    settings.remember_load("/m/1.gguf", LoadSettings(context_length=77))
    settings.remember_load("/m/new.gguf", LoadSettings())
    assert [settings.load_for(f"/m/{name}.gguf").context_length for name in (1, 3, 100, "new")] == [77, 3, 100, 0]
    assert settings.load_for("/m/0.gguf") == settings.load_for("/m/2.gguf") == LoadSettings(threads=2)
    assert len(settings.model_loads) == MAX_MODEL_LOADS


def test_heads_are_used_as_they_were_the_last_time() -> None:
    settings = Settings()
    for number in range(MAX_MODEL_LOADS + 1):
        settings.remember_head(f"/m/{number}.gguf", "on")
    settings.remember_head("/m/1.gguf", "off")
    settings.remember_head("/m/2.gguf", "auto")
    heads = [settings.head_for(f"/m/{name}.gguf") for name in (0, 1, 2, 3, "other")]
    assert heads == ["auto", "off", "auto", "on", "auto"]
    assert len(settings.model_heads) == MAX_MODEL_LOADS - 1


def test_the_chat_template_of_a_model_is_remembered(path: Path) -> None:
    write(path, (DATA / "settings-version-5.json").read_text(encoding="utf-8"))
    file = SettingsFile(path)
    assert (file.notice, file.values.template_for("/m/a.gguf")) == (None, "")
    for name in ("a", "b"):
        file.values.remember_template(f"/m/{name}.gguf", "chatml")
    file.values.remember_template("/m/a.gguf", "/m/own.jinja")
    file.values.remember_template("/m/b.gguf", "")
    file.values.models_moved(Path("/m"), Path("/n"))
    file.save()
    assert SettingsFile(path).values.model_templates == {"/n/a.gguf": "/n/own.jinja"}


@pytest.mark.parametrize("version", [1, 4])
def test_settings_from_before_the_first_release_are_not_used_and_left_alone(path: Path, version: int) -> None:
    content = json.loads((DATA / "settings-version-4.json").read_text(encoding="utf-8"))
    write(path, {**content, "version": version})
    before = path.read_bytes()
    file = SettingsFile(path)
    assert file.values == Settings()
    assert file.notice is not None
    assert "before its first release" in file.notice and str(path) in file.notice
    file.values.zoom = 150
    file.save()
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_servers_in_use_are_known_and_a_second_one_to_compare_with_is_left_alone(path: Path) -> None:
    content = json.loads((DATA / "settings-version-5.json").read_text(encoding="utf-8"))
    second = {"http://gpu-box:8000": {"target": "qwen", "draft": None, "server": "http://plain:8000"}}
    write(path, {**content, "plain_servers": second})
    file = SettingsFile(path)
    assert (file.notice, file.values.zoom) == (None, 110)
    assert file.values.known_servers() == ["http://gpu-box:8000"]
    file.save()
    assert SettingsFile(path).values == file.values
    assert json.loads(path.read_text(encoding="utf-8"))["plain_servers"] == second


def test_a_path_that_is_no_text_survives(path: Path) -> None:
    file = SettingsFile(path)
    file.values.remember_pair(Pair("/m/\udcff.gguf"))
    file.values.remember_load("/m/\udcff.gguf", LoadSettings(threads=2))
    file.save()
    assert SettingsFile(path).values.load_for("/m/\udcff.gguf") == LoadSettings(threads=2)
    assert SettingsFile(path).values.last_pair == Pair("/m/\udcff.gguf")


def test_a_save_that_fails_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SettingsFile(path)
    file.save()
    before = path.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    file.values.draft_length = 1
    with pytest.raises(KnownError, match="No space left on device"):
        file.save()
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["settings.json", "settings.json.lock"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")
def test_only_the_user_may_read_the_file(path: Path) -> None:
    SettingsFile(path).save()
    assert path.stat().st_mode & 0o777 == 0o600


_SAVING = """
import sys
import threading
from pathlib import Path
from app.settings import SettingsFile
file = SettingsFile(Path(sys.argv[1]))
number = 0
while True:
    number += 1
    file.values.zoom = 50 + number
    file.values.models_folder = "x" * 100_000
    file.save()
    print(number, flush=True)
"""


def test_a_kill_while_saving_leaves_a_whole_file(path: Path) -> None:
    command = [sys.executable, "-c", _SAVING, str(path)]
    with subprocess.Popen(command, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        saved = 0
        for _ in range(20):
            saved = int(child.stdout.readline())
        child.kill()
    file = SettingsFile(path)
    assert file.notice is None
    assert file.values.zoom >= 50 + saved
    assert len(file.values.models_folder) == 100_000


def test_models_that_were_moved_stay_known(path: Path, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    mine, draft, other = str(old / "a" / "ü.gguf"), str(old / "d.gguf"), str(tmp_path / "older" / "x.gguf")
    file = SettingsFile(path)
    for pair in (Pair(other, draft), Pair(mine), Pair(mine, draft)):
        file.values.remember_pair(pair)
    file.values.remember_load(mine, LoadSettings(context_length=512))
    file.values.remember_load(other, LoadSettings(context_length=256))
    file.values.remember_head(mine, "off")
    file.values.models_moved(old, new)
    file.save()
    values = SettingsFile(path).values
    mine, draft = str(new / "a" / "ü.gguf"), str(new / "d.gguf")
    assert values.last_pair == Pair(mine, draft)
    assert values.recent_pairs == [Pair(mine, draft), Pair(mine), Pair(other, draft)]
    assert [values.load_for(one).context_length for one in (mine, other)] == [512, 256]
    assert list(values.model_loads) == [mine, other]
    assert values.model_heads == {mine: "off"}
