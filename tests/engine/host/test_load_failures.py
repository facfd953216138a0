"""Loads that cannot work, or stop working in the middle: a sentence, and the engine goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from app.engine.host.engine import Engine
from app.engine.host.model_files import ModelFiles, default_draft_length, recommended_sampling
from app.engine.llama import backend
from app.engine.llama.model import Model
from app.protocol.commands import Load
from app.protocol.events import LoadProgressed, PairLoaded
from app.protocol.options import DEFAULT_DRAFT_LENGTH, MAX_CONTEXT_LENGTH, Sampling
from app.system import KnownError
from tests.support.engine_process import ROOT
from tests.support.gguf_files import CHATML_TEMPLATE, make_model
from tests.support.pairs import Loader, Pair


def split_model(folder: Path, seed: int = 0) -> tuple[Path, ...]:
    """A model in three files."""
    folder.mkdir(exist_ok=True)
    options = {"vocab_size": 360, "width": 32, "layers": 2, "max_tensors_per_file": 8}
    make_model(folder / "split.gguf", chat_template=CHATML_TEMPLATE, seed=seed, **options)  # type: ignore[arg-type]
    return tuple(sorted(folder.glob("split-*.gguf")))


def load_while(engine: Engine, command: Load, happens: Callable[[], object]) -> PairLoaded:
    """Something ``happens`` to a file while llama.cpp loads it."""
    waiting = [happens]

    def on_progress(progressed: LoadProgressed) -> None:
        if progressed.stage != "context" and progressed.stage == ("draft" if command.draft else "target") and waiting:
            waiting.pop()()

    loaded = engine.load(command, on_progress)
    assert not waiting
    return loaded


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("folder", "is a folder, not a model file."),
        ("pipe", "is not a regular file."),
        ("empty.gguf", "is empty."),
        ("gone.gguf", "no longer exists"),
        ("empty.gguf/model.gguf", "doesn't exist: a part of its path is not a folder."),
        ("zero\0byte", "can't be read: embedded null byte."),
        (None, "is a folder, not a model file."),
    ],
)
def test_what_is_no_file_is_refused_with_a_sentence(load: Loader, tmp_path: Path, name: str | None, says: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(KnownError) as failure:
        load(tmp_path / name if name else Path())
    assert says in str(failure.value)


def test_a_file_that_is_deleted_while_it_is_loaded(engine: Engine, tmp_path: Path) -> None:
    path = make_model(tmp_path / "model.gguf", layers=1)
    with pytest.raises(
        KnownError, match=r"^model.gguf couldn't be read while it was being loaded: it no longer exists"
    ):
        load_while(engine, Load(request=1, target=str(path)), path.unlink)
    make_model(path, layers=1)
    assert engine.load(Load(request=2, target=str(path)), lambda _: None).target.name == "model"


def test_a_file_that_is_replaced_while_it_is_loaded(engine: Engine, tmp_path: Path) -> None:
    path = make_model(tmp_path / "model.gguf", layers=1)
    other = make_model(tmp_path / "other.gguf", layers=1, seed=1)
    with pytest.raises(
        KnownError, match=r"^model.gguf changed while it was being loaded, so it wasn't used. Load it again."
    ):
        load_while(engine, Load(request=1, target=str(path)), lambda: other.rename(path))


def test_a_draft_that_is_deleted_while_it_is_loaded_costs_only_the_draft(engine: Engine, tmp_path: Path) -> None:
    path, draft = make_model(tmp_path / "model.gguf"), make_model(tmp_path / "draft.gguf", noise=0.1)
    loaded = load_while(engine, Load(request=1, target=str(path), draft=str(draft)), draft.unlink)
    assert loaded.draft is None and loaded.target.name == "model"
    assert loaded.draft_refused is not None and "draft.gguf couldn't be read" in loaded.draft_refused


def test_all_parts_of_a_split_model_tell_whether_it_is_the_same(tmp_path: Path) -> None:
    parts, others = split_model(tmp_path / "one"), split_model(tmp_path / "two", seed=1)
    assert len(parts) == 3
    known = ModelFiles.checked(parts[0])
    assert known.paths == parts
    status = parts[2].stat()
    assert known.stamp[-2:] == (status.st_size, status.st_mtime_ns) and len(known.stamp) == 6
    digest = known.fingerprint()
    parts[2].write_bytes(others[2].read_bytes())
    os.utime(parts[2], ns=(status.st_atime_ns, status.st_mtime_ns))
    known.check_unchanged()  # as far as times tell
    assert ModelFiles.checked(parts[0]).fingerprint() != digest
    os.utime(parts[2], ns=(1, 1))
    with pytest.raises(KnownError, match="changed while it was being loaded"):
        known.check_unchanged()


def test_another_part_of_a_split_model_is_loaded_anew(engine: Engine, load: Loader, tmp_path: Path) -> None:
    parts, others = split_model(tmp_path / "one"), split_model(tmp_path / "two", seed=1)
    load(parts[0])
    target = engine._target
    load(parts[0])
    assert engine._target is target
    parts[1].write_bytes(others[1].read_bytes())
    os.utime(parts[1], ns=(1, 1))
    load(parts[0])
    assert engine._target is not target


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on memory that Linux keeps")
def test_a_context_there_is_no_memory_for_is_refused_with_a_sentence(random_pair: Pair) -> None:
    script = (
        "import resource, sys\n"
        "from app.engine.host.engine import Engine\n"
        "from app.protocol.commands import Load\n"
        "from app.protocol.options import LoadSettings\n"
        "engine = Engine()\n"
        "def load(length):\n"
        "    settings = LoadSettings(context_length=length, target_gpu_layers=0)\n"
        "    return engine.load(Load(request=1, target=sys.argv[1], settings=settings), print)\n"
        "load(256)\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, -1))\n"
        "try:\n    load(2**22)\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
        "print(load(256).context_length)\n"
    )
    command = [sys.executable, "-c", script, str(random_pair[0])]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert "KnownError There isn't enough memory for a context of 4,194,304 tokens" in ended.stdout, ended.stderr
    assert ended.stdout.endswith("\n256\n") and ended.returncode == 0


def test_a_recommended_value_that_makes_no_sense_costs_none_of_the_others(tmp_path: Path) -> None:
    def recommend(writer: gguf.GGUFWriter) -> None:
        writer.add_float32("general.sampling.temp", 0.25)
        writer.add_int32("general.sampling.top_k", -1)
        writer.add_float32("general.sampling.top_p", 7.0)
        writer.add_float32("general.sampling.min_p", float("nan"))
        writer.add_float32("general.sampling.penalty_repeat", 1.5)
        writer.add_int32("general.sampling.penalty_last_n", -1)
        writer.add_string("slipstream.draft_length", "²")

    backend.start()
    model = Model(make_model(tmp_path / "model.gguf", layers=1, edit=recommend), 0, lambda _: True)
    expected = Sampling(temperature=0.25, top_k=0, repetition_penalty=1.5, penalty_window=MAX_CONTEXT_LENGTH)
    assert recommended_sampling(model) == (
        expected,
        ["temperature", "top_k", "repetition_penalty", "penalty_window"],
    )
    assert default_draft_length(model) == DEFAULT_DRAFT_LENGTH
    model.close()
