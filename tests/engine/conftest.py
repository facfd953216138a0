from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import llama_cpp
import numpy as np
import pytest

from app.engine.decoding.sampling import Floats
from app.engine.host import chat_cache, pair_costs
from app.engine.host.engine import Engine
from app.engine.llama import backend
from app.engine.llama.context import Context
from app.engine.policy.calibration import measure
from app.protocol.commands import Load
from app.protocol.events import PairLoaded
from app.protocol.options import LoadSettings
from tests.support.gguf_files import CHATML_TEMPLATE, make_model


@pytest.fixture(scope="session", autouse=True)
def _llama_cpp_has_started() -> None:
    """As in an engine's process: a test may load a model before any engine has."""
    backend.start()


@pytest.fixture(autouse=True)
def _quick_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test loads into a new home, where nothing was measured yet; as little as possible is, and no
    numbers of threads are timed, so that a test's loads compute alike."""
    monkeypatch.setattr(pair_costs, "measure", functools.partial(measure, budget=0.0))
    monkeypatch.setattr(pair_costs, "other_threads", lambda: None)
    monkeypatch.setattr(pair_costs, "others_use", lambda before, now: 0.0)  # other tests run beside this one


@pytest.fixture(scope="session")
def random_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target with random weights and a draft that agrees with it about half of the time.

    In full precision: rounding then moves a logit by some 1e-5, and a near-tie that it decides is seldom met.
    """
    folder = tmp_path_factory.mktemp("pair")
    target = make_model(folder / "target.gguf", chat_template=CHATML_TEMPLATE, weights="F32")
    return target, make_model(folder / "draft.gguf", chat_template=CHATML_TEMPLATE, weights="F32", noise=0.07)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token in a pass of its own, so that rounding is the same in every pass and a twin agrees to the last bit.

    For models with an ordinary KV cache.
    """
    decode = Context.decode

    def slowly(context: Context, tokens: Sequence[int], outputs: int) -> Floats:
        first = len(tokens) - outputs
        rows = [decode(context, [token], int(place >= first)).copy() for place, token in enumerate(tokens)]
        return np.concatenate(rows[first:]) if outputs else rows[-1]

    monkeypatch.setattr(Context, "decode", slowly)


@pytest.fixture
def every_cache_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """However quick its tokens are to process again."""
    monkeypatch.setattr(chat_cache, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(chat_cache, "READ_SECONDS_PER_BYTE", 0.0)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.unload()


@pytest.fixture
def load(engine: Engine) -> Callable[..., PairLoaded]:
    """Load a pair into ``engine``; keyword arguments are `LoadSettings`."""

    def load(target: Path, draft: Path | None = None, **settings: object) -> PairLoaded:
        command = Load(
            request=1,
            target=str(target),
            draft=str(draft) if draft else None,
            settings=LoadSettings(**settings),  # type: ignore[arg-type]
        )
        return engine.load(command, lambda _: None)

    return load


@pytest.fixture
def loaded(engine: Engine, load: Callable[..., PairLoaded], random_pair: tuple[Path, Path]) -> Engine:
    """``engine`` with the random pair loaded."""
    load(*random_pair)
    return engine


@pytest.fixture
def buffers() -> Iterator[dict[str, float]]:
    """MiB of the buffers that llama.cpp allocates, by device and purpose: ``{"Vulkan0 KV": 8.0}``, those of the same
    name added up. It is empty again after `clear`.
    """
    found: dict[str, float] = {}

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
    def note(_level: int, text: bytes, _data: object) -> None:
        line = text.decode("utf-8", "replace").strip()
        what, separator, size = line.partition(" buffer size = ")
        if separator and size.endswith("MiB"):
            name = what.split(":", 1)[1].strip()
            found[name] = found.get(name, 0.0) + float(size.removesuffix("MiB"))

    llama_cpp.llama_log_set(note, None)
    yield found
    backend.start()
