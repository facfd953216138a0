"""Everything needed to repeat a comparison, as it was when the comparison ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from app import __version__
from app.compare.results import Machine, ModelFile, Setup
from app.engine.protocol import LoadSettings, ModelInfo, PairLoaded
from app.ui.compare.choice import SetChoice
from app.ui.compare.runner import Compared
from app.ui.engine_client import Engine
from app.ui.pair import PairKeeper


@dataclass(frozen=True)
class _Taken:
    date: str
    engine: str
    devices: list[str]
    pair: PairLoaded
    load: LoadSettings


@dataclass(frozen=True)
class Files:
    """What a report names by its hash; ``None`` where there is no such file."""

    target: Path | None
    draft: Path | None
    prompts: Path | None


class Snapshot:
    """Pair, settings and machine of one comparison or one set."""

    def __init__(self, choice: SetChoice | None) -> None:
        """``choice`` is the set; ``None``: one prompt out of a chat."""
        self._choice = choice
        self._taken: _Taken | None = None

    def take(self, engine: Engine, keeper: PairKeeper) -> None:
        """Remember how things stand; only the first call does."""
        pair, files = keeper.pair(), keeper.files()
        if self._taken is None and pair is not None:
            date = datetime.now().astimezone().isoformat(timespec="seconds")
            load = files.settings if files else LoadSettings()
            self._taken = _Taken(date, engine.description(), engine.devices(), pair, load)

    def files(self) -> Files:
        pair = self._taken.pair if self._taken else None
        return Files(
            target=_file(pair.target) if pair else None,
            draft=_file(pair.draft) if pair and pair.draft else None,
            prompts=self._choice.path if self._choice else None,
        )

    def setup(self, results: Sequence[Compared]) -> Setup:
        """The setup without its hashes, which take time. Only after `take`."""
        taken, choice = self._taken, self._choice
        assert taken is not None
        pair, settings = taken.pair, results[0].task.settings
        return Setup(
            date=taken.date,
            app_version=__version__,
            engine=taken.engine,
            machine=Machine(devices=taken.devices),  # until app.compare has it
            target=_model(pair.target),
            draft=_model(pair.draft) if pair.draft else None,
            template=pair.template,
            context_length=pair.context_length,
            threads=pair.threads,
            target_gpu_layers=pair.target.gpu_layers,
            draft_gpu_layers=pair.draft.gpu_layers if pair.draft else 0,
            kv_type=taken.load.kv_type,
            batch_size=taken.load.batch_size,
            micro_batch_size=taken.load.micro_batch_size,
            sampling=settings.sampling,
            seed=min(result.task.seed for result in results),
            repeat=choice.repeats if choice else 1,
            max_tokens=settings.max_tokens,
            accept=settings.accept,
            drafter=settings.drafter,
            draft_length=settings.draft_length,
            propose=settings.propose,
            prompt_set="" if choice is None else "bundled" if choice.is_bundled else choice.path.name,
            kinds=list(choice.kinds) if choice else [],
        )


def _file(model: ModelInfo) -> Path | None:
    return Path(model.path) if model.path else None


def _model(model: ModelInfo) -> ModelFile:
    return ModelFile(
        name=model.name,
        file=Path(model.path).name,
        size_bytes=model.size_bytes,
        quantization=model.quantization,
        parameters=model.parameters,
    )
