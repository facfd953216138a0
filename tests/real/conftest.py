"""The files, and an engine for each that all tests share: loading and measuring takes seconds."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import llama_cpp
import pytest

from app.engine.host import pair_costs
from app.engine.host.engine import Engine
from app.engine.llama import backend
from app.engine.policy.calibration import measure
from tests.real.loaded import Loaded, load
from tests.support.real_models import GEMMA, SMOLLM2, RealModel, found


def _path(model: RealModel) -> Path:
    path = found(model)
    if path is None:
        pytest.skip(f"{model.file} is not on this machine; scripts/real-models downloads it.")
    return path


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    return _path(SMOLLM2)


@pytest.fixture(scope="session")
def gemma_file() -> Path:
    return _path(GEMMA)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], Loaded]]:
    """Loads a file once, with all of its 8,192 tokens of context; what it measures goes into a home of its own."""
    backend.start()
    loaded: dict[Path, Loaded] = {}

    def get(path: Path) -> Loaded:
        if path not in loaded:
            with pytest.MonkeyPatch.context() as environment:
                environment.setenv("SLIPSTREAM_HOME", str(tmp_path_factory.mktemp("home")))
                loaded[path] = load(Engine(), path)
        return loaded[path]

    yield get
    for one in loaded.values():
        one.engine.unload()


@pytest.fixture(scope="session")
def smollm2(shared: Callable[[Path], Loaded], smollm2_file: Path) -> Loaded:
    return shared(smollm2_file)


@pytest.fixture(scope="session")
def gemma(shared: Callable[[Path], Loaded], gemma_file: Path) -> Loaded:
    return shared(gemma_file)


@pytest.fixture(scope="session")
def q8_0(shared: Callable[[Path], Loaded], smollm2_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """SmolLM2 again, in Q8_0."""
    path = tmp_path_factory.mktemp("quantized") / "SmolLM2-Q8_0.gguf"
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, True
    assert llama_cpp.llama_model_quantize(os.fsencode(smollm2_file), os.fsencode(path), ctypes.byref(params)) == 0
    return shared(path)


@pytest.fixture(params=["smollm2", "gemma"])
def real(request: pytest.FixtureRequest) -> Loaded:
    """Each of them, with nothing left of earlier tests."""
    loaded: Loaded = request.getfixturevalue(request.param)
    loaded.engine.forget()
    return loaded


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """One of the test's own, which measures as little as possible when it loads."""
    monkeypatch.setattr(pair_costs, "measure", functools.partial(measure, budget=0.0))
    engine = Engine()
    yield engine
    engine.unload()
