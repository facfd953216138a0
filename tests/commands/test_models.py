"""``slipstream models``: what it prints, what it leaves, its exit status."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app import cli
from app.models.library.library import Library
from app.models.machine_memory import MachineMemory
from app.models.measurements import FileKey, StoredTrial, Trial, trials_file
from app.models.origins import Origin, origins_file
from app.protocol.events import Device
from tests.support.eagle3_models import make_bare_head
from tests.support.gguf_files import make_model
from tests.support.library_parts import small_model

Shown = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_other_apps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "user"))
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def models(home: Path) -> Path:
    """A target with a draft that fits and one that does not, and a file that is no model."""
    folder = home / "models"
    small_model(folder / "owner/Small-GGUF/Small-F16.gguf")
    small_model(folder / "other/Foreign.gguf", tokenizer="gpt2")
    big = folder / "owner/Big-GGUF/Big-F32.gguf"
    big.parent.mkdir()
    make_model(big, width=256, heads=4, weights="F32", name="Big")
    (folder / "broken.gguf").write_bytes(b"no")
    return folder


def call(*arguments: str | Path) -> int:
    return cli.run(["models", *map(str, arguments)])


def as_json(capsys: Shown, *arguments: str | Path) -> Any:
    call(*arguments, "--json")
    return json.loads(capsys.readouterr().out)


# ---------------------------------------------------------------- list


def test_list(models: Path, home: Path, capsys: Shown) -> None:
    Library(models, (), home).note_use([models / "owner/Small-GGUF/Small-F16.gguf"])
    assert call("list", "--sort", "size") == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["owner/Big-GGUF/Big-F32", "owner/Small-GGUF/Small-F16", "other/Foreign"]
    assert sorted(line.split()[0] for line in lines[:3]) == sorted(names) and lines[0].startswith(names[0])
    assert "F32" in lines[0] and "512 tokens" in lines[0] and "never used" in lines[0]
    (small,) = [line for line in lines if names[1] in line]
    assert "never used" not in small and small.endswith("models folder")
    assert lines[3:] == ["", "These can't be used:", "  broken: broken.gguf is not a GGUF model file."]
    listed = as_json(capsys, "list", "small", "OWNER")
    (one,) = listed["models"]
    assert (one["title"], one["name"]) == ("Small", "owner/Small-GGUF/Small-F16")
    assert (one["usable"], one["read_only"], one["problem"], one["folder_kind"]) == (True, False, None, "own")
    assert one["model"]["quantization"] == "F16" and one["model"]["tokenizer"]["size"] == 512
    assert listed["folders"] == [{"path": str(models), "kind": "own"}]
    assert (listed["found_folders"], listed["notices"]) == ([], [])
    assert call("list", "big", "small") == 0
    assert capsys.readouterr().out == "No model has big small in its name.\n"


def test_heads_are_listed_as_what_drafts_for_a_model(models: Path, capsys: Shown) -> None:
    make_bare_head(models / "eagle3-big.gguf", target_width=256)
    assert call("list", "eagle3") == 0
    assert capsys.readouterr().out.startswith("These draft for a model (--draft):\n  eagle3-big: EAGLE-3 head, ")
    assert call("list") == 0
    assert "\n\nThese draft for a model (--draft):\n  eagle3-big: EAGLE-3 head, " in (told := capsys.readouterr().out)
    assert told.endswith("\n\nThese can't be used:\n  broken: broken.gguf is not a GGUF model file.\n")
    (head,) = as_json(capsys, "list", "eagle3")["models"]
    assert (head["head"], head["usable"]) == ("eagle3", False)


def test_an_empty_library_and_folders_of_other_apps(home: Path, tmp_path: Path, capsys: Shown) -> None:
    studio = tmp_path / "user/.lmstudio/models"
    studio.mkdir(parents=True)
    assert call("list") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"There are no models in {home / 'models'}.",
        f"There are models from another app (LM Studio) in {studio}. You can add the folder in Settings.",
    ]
    small_model(home / "models/one.gguf")
    assert call("pair", "one") == 1
    assert capsys.readouterr().out == "There are no other models in the library.\n"


def test_folders_of_the_settings(home: Path, tmp_path: Path, capsys: Shown) -> None:
    extra = small_model(tmp_path / "extra/one.gguf").parent
    small_model(tmp_path / "mine/two.gguf")
    home.mkdir()
    settings = {"version": 5, "models_folder": str(tmp_path / "mine"), "extra_folders": [str(extra)]}
    (home / "settings.json").write_text(json.dumps(settings))
    found = {one["title"]: one["folder_kind"] for one in as_json(capsys, "list")["models"]}
    assert found == {"one": "extra", "two": "own"}
    (tmp_path / "extra").rename(tmp_path / "away")
    assert call("list") == 0
    assert f"one: its folder, {extra}, isn't available right now." in capsys.readouterr().out


# ---------------------------------------------------------------- names, inspect


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("nothing", 'No model is called "nothing". "slipstream models list" shows all of them.'),
        ("owner", '2 models have "owner" in their names: owner/Big-GGUF/Big-F32, owner/Small-GGUF/Small-F16. '),
        ("gone.gguf", "gone.gguf no longer exists"),
        ("\x1b[31m", 'No model is called "\\x1b[31m".'),
        ("x" * 5000, 'No model is called "xxx'),
    ],
)
def test_names_that_say_too_little(models: Path, capsys: Shown, word: str, message: str) -> None:
    assert call("inspect", word) == 1
    told = capsys.readouterr()
    assert message in told.err and told.err.count("\n") == 1 and not told.out


# ---------------------------------------------------------------- pair


def test_pair_ranks_the_library(models: Path, home: Path, capsys: Shown) -> None:
    target, draft = models / "owner/Big-GGUF/Big-F32.gguf", models / "owner/Small-GGUF/Small-F16.gguf"
    trial = Trial(acceptance_rate=0.61, plain_speed=10, drafted_speed=15, tokens=99, measured_at=1)
    trials_file(home).add(StoredTrial(FileKey.of(target), FileKey.of(draft), trial))
    assert call("pair", "big") == 0
    printed = capsys.readouterr().out
    assert "     Measured on this computer: 1.5× as fast as without the draft, 61% accepted." in printed.splitlines()
    ranked = as_json(capsys, "pair", "big")
    assert ranked["target"]["title"] == "Big"
    assert [(one["position"], one["draft"]["title"], one["fits"]) for one in ranked["drafts"]] == [
        (1, "Small", True),
        (2, "Foreign", False),
        (3, "broken", False),
    ]
    assert ranked["drafts"][0]["trial"]["speed_up"] == 1.5
    assert ranked["drafts"][2]["reason"] == "broken.gguf is not a GGUF model file."
    untested = msgspec.structs.replace(trial, acceptance_rate=None, drafted_speed=9)
    trials_file(home).add(StoredTrial(FileKey.of(target), FileKey.of(draft), untested))
    assert call("pair", "big") == 0
    assert "     Measured on this computer: 0.9× as fast as without the draft." in capsys.readouterr().out.splitlines()


# ---------------------------------------------------------------- plan


def test_plan_of_a_pair(models: Path, capsys: Shown) -> None:
    assert call("plan", "big", "small", "--context", "256") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "needs" in lines[0]
    labels = ["Target weights", "Target KV cache", "Draft weights", "Draft KV cache", "Compute buffers"]
    assert [line[:17].strip() for line in lines[3:10]] == [*labels, "total", "available"]
    assert lines[-1].startswith("context 256 tokens, f16 KV cache")
    assert call("plan", "big", "foreign") == 1
    assert "the models don't fit together. The vocabularies are of different kinds" in capsys.readouterr().err
    assert call("plan", "broken") == 1
    assert "broken.gguf is not a GGUF model file." in capsys.readouterr().err


def test_plan_on_several_gpus(models: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    gib = 1024**3
    gpus = [Device(name=f"CUDA{n}", description="GPU", total_bytes=8 * gib, free_bytes=8 * gib) for n in range(2)]
    here = MachineMemory(memory_total=64 * gib, memory_free=60 * gib, devices=gpus)
    monkeypatch.setattr("app.commands.models.machine_now", lambda _: here)
    assert call("plan", "big", "small", "--tensor-split", "3,1", "--draft-device", "CUDA1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["memory", "CUDA0", "CUDA1"]
    assert lines[-1].endswith("layers on the GPU: all of the target, all of the draft on CUDA1")
    planned = as_json(capsys, "plan", "big", "--split-mode", "none", "--main-gpu", "CUDA1")["plan"]
    first, second = planned["estimate"]["gpus"]
    assert first["target_weights"] == 0 < second["target_weights"] == planned["estimate"]["gpu"]["target_weights"]
    assert planned["gpu_rooms"]["CUDA0"] == 0 < planned["gpu_rooms"]["CUDA1"] == planned["gpu_room"]
    with pytest.raises(SystemExit):
        call("plan", "big", "--main-gpu", "CUDA1")


def test_a_plan_that_does_not_fit_says_what_would(models: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    small = MachineMemory(memory_total=64 * 10**6, memory_free=40 * 10**6)
    monkeypatch.setattr("app.commands.models.machine_now", lambda _: small)
    planned = as_json(capsys, "plan", "big", "--kv-type", "q8_0", "--context", "256")
    assert planned["plan"]["fits"] and not planned["plan"]["with_draft"] and planned["plan"]["kv_type"] == "q8_0"
    assert planned["plan"]["estimate"]["system"]["target_weights"] > 10**6
    assert planned["machine"]["memory_total"] > planned["plan"]["system_room"] > 0 and planned["alternatives"] == []
    assert call("plan", "big", "--context", "1000000") == 1
    printed = capsys.readouterr().out
    assert "The target needs" in printed and "What would fit:\n  " in printed


# ---------------------------------------------------------------- verify, remove


def test_verify(models: Path, home: Path, capsys: Shown) -> None:
    path = models / "owner/Small-GGUF/Small-F16.gguf"
    assert call("verify", "small") == 1
    assert capsys.readouterr().out.endswith("can't be verified: its SHA-256 checksum isn't known.\n")
    origins = origins_file(home)
    origin = Origin(repository="owner/x", commit="", path="", sha256="0" * 64, size=1)
    origins.put(path, origin)
    assert call("verify", "small") == 1
    assert "has changed or is damaged" in capsys.readouterr().out
    assert as_json(capsys, "verify", "small")["same"] is False
    origins.put(path, msgspec.structs.replace(origin, sha256=hashlib.sha256(path.read_bytes()).hexdigest()))
    assert call("verify", "small") == 0
    assert capsys.readouterr().out.endswith(" is intact: the SHA-256 checksum matches.\n")


def test_remove_says_what_it_frees(models: Path, capsys: Shown) -> None:
    path = models / "owner/Small-GGUF/Small-F16.gguf"
    size = path.stat().st_size
    assert as_json(capsys, "remove", "small", "--yes") == {"deleted": [str(path)], "freed": size}
    assert not path.parent.exists() and (models / "owner").is_dir()


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 130), ("\n", 130), ("", 130)])
def test_remove_asks(models: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch, answer: str, status: int) -> None:
    path = models / "owner/Small-GGUF/Small-F16.gguf"
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert call("remove", "small") == status
    asked = capsys.readouterr().err
    assert str(path) in asked and "Delete owner/Small-GGUF/Small-F16 and free" in asked
    assert path.exists() is (status != 0)


def test_remove_leaves_folders_of_others_alone(tmp_path: Path, models: Path, capsys: Shown) -> None:
    path = small_model(tmp_path / "elsewhere/one.gguf")
    assert call("remove", path, "--yes") == 1
    assert "so Slipstream won't delete it" in capsys.readouterr().err
    assert path.exists()
