"""``slipstream models search`` and ``get``, with a hub on loopback."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from app import cli
from app.commands.output import show_progress
from app.models.downloads.item import FILE_NAME as QUEUE_NAME
from app.models.downloads.item import Item, ItemState, SavedItem
from app.models.downloads.part import Part, part_path
from app.models.gguf import read_header
from app.models.heads import find_projector
from app.models.hub.catalog import DraftModel, load_catalog
from app.models.hub.repository import Sort
from app.models.origins import origins_file
from tests.support.command_line import ROOT, called
from tests.support.eagle3_models import make_table_head, make_table_target
from tests.support.gguf_files import make_model
from tests.support.hub_faults import Fault
from tests.support.hub_server import HubServer, without_settings_of_the_system
from tests.support.library_parts import small_model
from tests.support.mtp_models import make_head_file, make_table_model
from tests.support.saved_queue import write_queue
from tests.support.vision_models import make_projector, make_seeing_model

Shown = pytest.CaptureFixture[str]

TARGET = "owner/My-Tune-8B-GGUF"
DRAFT = "maker/My-Tune-Draft-GGUF"


@pytest.fixture(autouse=True)
def _nothing_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings_of_the_system(monkeypatch)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")


@pytest.fixture
def server(home: Path) -> Iterator[HubServer]:
    with HubServer() as server:
        save_settings(home, hub_endpoint=server.endpoint)
        yield server


def save_settings(home: Path, **values: Any) -> None:
    home.mkdir(exist_ok=True)
    (home / "settings.json").write_text(json.dumps({"version": 5, **values}))


@pytest.fixture
def target(server: HubServer, tmp_path: Path) -> Path:
    """A repository with two quantizations of a model, as far as their names go."""
    name = "My-Tune-8B-Q8_0.gguf"
    path = make_model(tmp_path / name, name="My Tune 8B", width=256, layers=4)
    server.add(TARGET, {name: path, "My-Tune-8B-Q4_K_M.gguf": small_model(tmp_path / "small.gguf")}, license="mit")
    return path


def call(*arguments: str | Path) -> int:
    return cli.run(["models", *map(str, arguments)])


def as_json(capsys: Shown, *arguments: str | Path) -> Any:
    assert call(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: Shown, *arguments: str | Path) -> str:
    """What is said by a command that fails, and that leaves nothing."""
    assert call(*arguments) == 1
    told = capsys.readouterr()
    assert not told.out
    return told.err


# ---------------------------------------------------------------- search


def test_search(server: HubServer, capsys: Shown) -> None:
    server.add("a/Qwen3-GGUF", {}, downloads=1_234_567, likes=89, license="apache-2.0")
    server.add("b/Qwen3-mine-GGUF", {}, downloads=12, gated="manual", license="\x1b[31m")
    server.add("b/other-GGUF", {}, likes=90)
    assert call("search", "qwen3", "GGUF") == 0
    assert capsys.readouterr().out.splitlines() == [
        "repository         downloads  likes  changed     gated                     license",
        "a/Qwen3-GGUF            1.2M     89  2026-01-02                            apache-2.0",
        "b/Qwen3-mine-GGUF         12      0  2026-01-02  gated, approved manually  \\x1b[31m",
    ]
    (found,) = as_json(capsys, "search", "gguf", "--sort", "likes", "--limit", "1")["repositories"]
    assert (found["id"], found["likes"], found["gated"], found["license"]) == ("b/other-GGUF", 90, "no", "apache-2.0")
    assert set(get_args(Sort)) == {"trending", "downloads", "likes", "newest"}
    assert call("search", "nothing", "\x1b") == 0
    assert capsys.readouterr().out == 'No repository has "nothing \\x1b" in its name.\n'


@pytest.mark.parametrize("arguments", [("search", "x"), ("get", TARGET), ("get", "qwen3-8b")])
def test_offline(home: Path, capsys: Shown, arguments: tuple[str, ...]) -> None:
    save_settings(home, offline=True)
    assert refused(capsys, *arguments) == "slipstream: Slipstream is offline: the network is turned off in Settings.\n"


# ---------------------------------------------------------------- which model


def test_the_only_model_of_a_repository(server: HubServer, home: Path, tmp_path: Path, capsys: Shown) -> None:
    path = small_model(tmp_path / "one.gguf")
    server.add("owner/one", {"one.gguf": path, "README.md": b"no model"})
    server.faults.add("one.gguf", Fault(status=503), at="resolve")
    assert call("get", "owner/one") == 0
    got = home / "models/owner/one/one.gguf"
    trouble = "slipstream: 127.0.0.1 has a problem (status 503). Trying again.\n"
    assert capsys.readouterr() == (f"{got}\n", trouble)
    assert got.read_bytes() == path.read_bytes()
    origin = origins_file(home).get(got)
    assert origin is not None and (origin.repository, origin.license) == ("owner/one", "apache-2.0")
    assert call("get", "owner/one") == 0  # it is there
    assert len(server.bodies()) == 1


def test_a_repository_with_several_says_what_it_has(server: HubServer, target: Path, capsys: Shown) -> None:
    lines = refused(capsys, "get", TARGET).splitlines()
    assert lines[0] == (
        f'slipstream: {TARGET} has 2 models. Choose one, as in "slipstream models get {TARGET}:Q4_K_M":'
    )
    assert [line.split(" (")[0] for line in lines[1:]] == ["  Q4_K_M", "  Q8_0"]
    assert refused(capsys, "get", f"{TARGET}:Q2_K").startswith(f"slipstream: {TARGET} has no model Q2_K, only these.")
    assert not server.bodies()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("owner/nothing", "owner/nothing doesn't exist on 127.0.0.1, or is private and needs an access token."),
        ("owner/na me", "owner/na me is not a repository name. It should look like owner/name."),
        ("gpt\x1b", "gpt\\x1b is neither a repository (owner/name) nor one of the recommended models: gemma-4-e2b,"),
        ("owner/empty", "owner/empty has no GGUF models to download."),
    ],
)
def test_what_is_not_there(server: HubServer, capsys: Shown, wanted: str, message: str) -> None:
    server.add("owner/empty", {"README.md": b""})
    assert message in refused(capsys, "get", wanted)


# ---------------------------------------------------------------- drafts


def test_with_a_draft(server: HubServer, target: Path, home: Path, tmp_path: Path, capsys: Shown) -> None:
    other = small_model(tmp_path / "Other-Q8_0.gguf", vocab_size=900)
    server.add("other/My-Tune-Draft-GGUF", {other.name: other})
    told = refused(capsys, "get", f"{TARGET}:Q8_0", "--with-draft")
    assert "No matching draft was found. Without --with-draft, only the target is downloaded.\n" in told
    assert "  other/My-Tune-Draft-GGUF: The vocabularies" in told and "900 in the draft" in told
    assert not (home / "models").exists()
    draft = small_model(tmp_path / "My-Tune-Draft-Q8_0.gguf")
    server.add(DRAFT, {draft.name: draft}, license="apache-2.0")
    assert call("get", f"{TARGET}:Q8_0", "--with-draft", "--json") == 0
    shown = capsys.readouterr()
    got = json.loads(shown.out)
    assert f"The draft is {draft.name} from {DRAFT} (" in shown.err
    assert "% of the target). Compatible: same vocabulary of 512 tokens." in shown.err
    assert got["title"] == "My-Tune-8B-GGUF Q8_0 with draft" and got["license"] == "mit, apache-2.0"
    assert got["draft"]["path"] == str(home / "models" / DRAFT / draft.name)
    assert Path(got["draft"]["path"]).read_bytes() == draft.read_bytes()


def test_a_recommended_pair(server: HubServer, home: Path, tmp_path: Path, capsys: Shown) -> None:
    (file,) = next(model for model in load_catalog().models if model.id == "qwen3-8b").files
    draft = file.accelerator
    assert isinstance(draft, DraftModel)
    content = small_model(tmp_path / "any.gguf")
    server.add(file.repository, {file.file: content})
    server.add(draft.repository, {draft.file: content})
    assert call("get", "Qwen3-8B") == 0
    folder = home / "models"
    assert capsys.readouterr().out.splitlines() == [
        str(folder / file.repository / file.file),
        str(folder / draft.repository / draft.file),
    ]


def test_a_head_comes_with_its_model(server: HubServer, home: Path, tmp_path: Path, capsys: Shown) -> None:
    model = make_table_model(tmp_path / "m.gguf", "qwen35", without=("blk.2.",))
    head = make_head_file(tmp_path / "head.gguf", "qwen35")
    server.add("owner/m", {"m-Q4_0.gguf": model, "MTP/mtp-m.gguf": head})
    assert call("get", "owner/m", "--json") == 0
    told = capsys.readouterr()
    got = json.loads(told.out)
    assert "Its MTP head comes with it: mtp-m.gguf (" in told.err
    assert got["title"] == "m Q4_0 with MTP head" and got["draft"] is None
    folder = home / "models/owner/m"
    assert got["head"]["path"] == str(folder / "mtp-m.gguf")
    assert (folder / "mtp-m.gguf").read_bytes() == head.read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == ["m-Q4_0.gguf", "mtp-m.gguf"]
    server.add("owner/m", {"m-Q4_0.gguf": model, "mtp-m.gguf": small_model(tmp_path / "none.gguf")})
    assert as_json(capsys, "get", "owner/m")["head"] is None


def test_an_eagle3_head_comes_with_its_model_or_by_itself(
    server: HubServer, home: Path, tmp_path: Path, capsys: Shown
) -> None:
    model, head = make_table_target(tmp_path / "m.gguf"), make_table_head(tmp_path / "head.gguf")
    server.add("owner/m", {"m-Q4_0.gguf": model, "eagle3-m.gguf": head})
    got = as_json(capsys, "get", "owner/m")
    assert got["title"] == "m Q4_0 with EAGLE-3 head"
    assert got["head"]["path"] == str(home / "models/owner/m/eagle3-m.gguf")
    server.add("owner/m-EAGLE3", {"m-eagle3-Q8_0.gguf": head})
    for wanted in ("owner/m-EAGLE3", "owner/m-EAGLE3:q8_0"):
        got = as_json(capsys, "get", wanted)
        assert got["target"]["path"] == str(home / "models/owner/m-EAGLE3/m-eagle3-Q8_0.gguf") and got["head"] is None
    server.add("owner/m-DFlash2", {"m-DFlash2-Q8_0.gguf": b"1"})
    told = refused(capsys, "get", "owner/m-DFlash2")
    assert "owner/m-DFlash2 has only DFlash2 drafters, which this version of Slipstream can't use." in told


def test_a_projector_comes_if_it_is_asked_for(server: HubServer, home: Path, tmp_path: Path, capsys: Shown) -> None:
    model = make_seeing_model(tmp_path / "m.gguf", "qwen2vl")
    projectors = [
        make_projector(tmp_path / "wider.gguf", "qwen2vl", target_width=96),
        make_projector(tmp_path / "gemma.gguf", "gemma3"),
        make_projector(tmp_path / "right.gguf", "qwen2vl"),
    ]
    names = "mmproj-F16.gguf", "mmproj-BF16.gguf", "vision/m-mmproj-Q8_0.gguf"
    server.add("owner/m", {"m-Q4_0.gguf": model, **dict(zip(names, projectors, strict=True))})
    assert as_json(capsys, "get", "owner/m")["projector"] is None
    assert call("get", "owner/m", "--with-images", "--json") == 0
    told = capsys.readouterr()
    assert "It sees images with m-mmproj-Q8_0.gguf (" in told.err
    path = home / "models/owner/m/m-mmproj-Q8_0.gguf"
    assert json.loads(told.out)["projector"]["path"] == str(path)
    assert path.read_bytes() == projectors[2].read_bytes()
    found = find_projector(read_header(home / "models/owner/m/m-Q4_0.gguf"))
    assert found is not None and found.path == path
    server.add("owner/blind", {"m-Q4_0.gguf": model})
    assert call("get", "owner/blind", "--with-images") == 1
    assert "owner/blind has no file (mmproj) with which m-Q4_0" in capsys.readouterr().err


# ---------------------------------------------------------------- what can go wrong


def test_gated(server: HubServer, home: Path, tmp_path: Path, capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_model(tmp_path / "one.gguf")
    server.add("owner/one", {"one.gguf": path}, gated="auto")
    save_settings(home, hub_endpoint=server.endpoint, token_to_mirror=True)
    told = refused(capsys, "get", "owner/one")
    assert "owner/one is gated" in told and f"Its page: {server.endpoint}/owner/one" in told and "HF_TOKEN" in told
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    assert call("get", "owner/one") == 0
    assert Path(capsys.readouterr().out.strip()).read_bytes() == path.read_bytes()


def test_what_others_have_stays_as_it_is(server: HubServer, home: Path, tmp_path: Path, capsys: Shown) -> None:
    """Another file in its place, the window's downloads, and one that the window is at."""
    one, other = small_model(tmp_path / "one.gguf"), small_model(tmp_path / "other.gguf", seed=1)
    server.add("owner/one", {"one.gguf": one})
    server.add("owner/other", {"other.gguf": other})
    place = home / "models/owner/one/one.gguf"
    with Part(place, server.remote_file("owner/one", "one.gguf")):
        told = refused(capsys, "get", "owner/one")
    assert "one.gguf is already being downloaded, perhaps by another Slipstream window." in told
    place.write_bytes(b"mine")
    assert "Move or delete it, then run the same command again." in refused(capsys, "get", "owner/one")
    assert place.read_bytes() == b"mine"
    item = Item(id="1", title="One", target=(server.remote_file("owner/one", "one.gguf"),))
    write_queue(home / QUEUE_NAME, [SavedItem(item=item, folder=str(home / "models"), state=ItemState.RUNNING)])
    before = (home / QUEUE_NAME).read_bytes()
    assert call("get", "owner/other") == 0
    assert (home / QUEUE_NAME).read_bytes() == before and len(server.bodies()) == 1


# ---------------------------------------------------------------- Ctrl+C


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send Ctrl+C to one process")
def test_ctrl_c_keeps_what_came_and_the_same_command_goes_on(server: HubServer, home: Path, tmp_path: Path) -> None:
    path = make_model(tmp_path / "one.gguf", width=256, layers=4)
    server.add("owner/one", {"one.gguf": path})
    half = path.stat().st_size // 2
    server.faults.add("one.gguf", Fault(stall_at=half))
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "models", "get", "owner/one"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    part, pause = part_path(home / "models/owner/one/one.gguf"), threading.Event()
    # Nothing tells when another process has written, so the file is looked at again and again.
    while not part.exists() or part.stat().st_size < half:
        assert process.poll() is None, process.communicate()
        pause.wait(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == "slipstream: Stopped. What was downloaded is kept; run the same command again to continue.\n\n"
    assert part.stat().st_size == half
    again = called("models", "get", "owner/one")
    assert again.returncode == 0, again.stderr
    assert Path(again.stdout.strip()).read_bytes() == path.read_bytes()
    assert server.bodies()[-1].range == f"bytes={half}-"


def test_progress_is_one_line_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "30")
    show_progress("1 of 2 GB\n" * 9)
    show_progress("")
    _, shown, nothing = terminal.getvalue().split("\r\x1b[K")
    assert shown.startswith("1 of 2 GB") and len(shown) < 30 and not nothing
