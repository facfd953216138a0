"""Images are encoded with as many threads as other programs leave free."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from llama_cpp import mtmd_cpp

from app.engine.host import loading, pair_costs, pair_threads, threads
from app.engine.host.engine import Engine
from app.engine.host.thread_control import ThreadControl, Usage
from app.errors import KnownError
from app.protocol.commands import Image, Load, Message
from tests.support.generation import GREEDY, Answer, ask, run
from tests.support.vision_models import make_image, make_projector, make_seeing_model


class Computer:
    """One with two cores, where a second passes between two looks."""

    def __init__(self) -> None:
        self.busy = 0.0
        """Cores that other programs use."""
        self._all = self._own = self._time = 0.0

    def usage(self) -> Usage:
        self._time += 1.0
        self._own += 1.0
        self._all += 1.0 + self.busy
        return Usage(self._all, self._own, self._time)


@pytest.fixture
def computer(monkeypatch: pytest.MonkeyPatch) -> Computer:
    for module in (loading, pair_costs, threads):
        monkeypatch.setattr(module, "default_threads", lambda: 2)
    for module in (pair_costs, threads):
        monkeypatch.setattr(module, "other_threads", lambda: None)
    made = Computer()
    monkeypatch.setattr(pair_threads, "ThreadControl", partial(ThreadControl, usage=made.usage))
    return made


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads of each projector that libmtmd reads."""
    found: list[int] = []
    read = mtmd_cpp.mtmd_init_from_file

    def counted(path: bytes, model: int, params: Any) -> Any:
        found.append(params.n_threads)
        return read(path, model, params)

    monkeypatch.setattr(mtmd_cpp, "mtmd_init_from_file", counted)
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("files")
    target = make_seeing_model(folder / "target.gguf", "gemma3")
    return target, make_projector(folder / "mmproj.gguf", "gemma3")


@pytest.fixture
def seeing(computer: Computer, loads: list[int], engine: Engine, files: tuple[Path, Path]) -> Iterator[Engine]:
    target, projector = map(str, files)
    engine.load(Load(request=1, target=target, projector=projector), lambda _: None)
    yield engine


def said(engine: Engine, *images: Image) -> Answer:
    messages = [Message(role="user", content="Look.", images=images)]
    return run(engine, ask("", messages=messages, sampling=GREEDY, max_tokens=16, draft_length=0))


def test_fewer_while_others_are_busy_and_all_again_afterwards_change_no_word(
    seeing: Engine, computer: Computer, loads: list[int], tmp_path: Path
) -> None:
    first, second = make_image(tmp_path / "a.png"), make_image(tmp_path / "b.png", seed=2)
    quiet = [said(seeing, first).text, said(seeing, second).text, said(seeing, first, second).text]
    assert loads == [2] and quiet[0] != quiet[1]
    seeing.forget()
    computer.busy = 1.0
    assert [said(seeing, first).text, said(seeing, second).text] == quiet[:2]
    assert loads == [2, 1]
    computer.busy = 0.0
    assert said(seeing, first, second).text == quiet[2]  # both are still known
    said(seeing, make_image(tmp_path / "c.png", seed=3))
    assert loads == [2, 1, 2]


def test_a_projector_whose_file_is_gone_is_missed_without_a_crash(
    seeing: Engine, computer: Computer, files: tuple[Path, Path], tmp_path: Path
) -> None:
    known = make_image(tmp_path / "a.png")
    said(seeing, known)
    computer.busy = 1.0
    aside = files[1].rename(tmp_path / "aside.gguf")
    try:
        with pytest.raises(KnownError, match="can't use the projector"):
            said(seeing, make_image(tmp_path / "b.png", seed=2))
        for image in (known, make_image(tmp_path / "c.png", seed=3)):
            assert seeing._target is not None
            seeing._target.context.clear()
            with pytest.raises(KnownError, match="Load the model again"):
                said(seeing, image)
    finally:
        aside.rename(files[1])
