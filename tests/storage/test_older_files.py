"""Files that commit 324c867 wrote (``tests/data/version-324c867``): before there were locks, some without a version."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from app.engine.llama.checkpoints import RollBackSupport
from app.engine.policy.acceptance import AcceptancePrior, RatePrior
from app.engine.policy.calibration import Build, MeasuredCosts
from app.engine.policy.costs import Costs
from app.engine.policy.history import Remembered, history_file
from app.models.downloads.item import ItemState
from app.models.downloads.part import Part
from app.models.downloads.queue_file import QueueFile, has_work
from app.models.hub.repository import RemoteFile
from app.models.library.index import LibraryIndex
from app.models.library.usage import Usage
from app.models.measurements import Measurements, PlainKey
from app.models.origins import Origins
from app.models.trials import FileKey, Trials
from app.protocol.messages import KindFigures, LoadSettings, Sampling
from app.settings import FormerSettings, Pair, SettingsFile
from app.storage.json_file import decode, version_of
from app.storage.keyed_file import KeyedFile

UNDER_OLDER_NAMES = Path(__file__).parent.parent / "data" / "version-0465daa"
KEY = "0" * 24
MODEL = Path("/models/owner/one/one.gguf")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(Path(__file__).parent.parent / "data" / "version-324c867", tmp_path / "files"))


def test_settings(folder: Path) -> None:
    file = SettingsFile(folder / "settings.json")
    values = file.values
    assert (file.notice, values.draft_length) == (None, 5)
    assert file.former == FormerSettings(seed=7, sampling=Sampling(temperature=0.5))
    assert values.load == values.load_for("/models/t\udcff.gguf") == LoadSettings(context_length=4096)
    assert values.last_pair == Pair("/models/t\udcff.gguf", "/models/d.gguf")
    before = decode((folder / "settings.json").read_bytes(), dict)
    values.draft_length = before["draft_length"] = 8
    file.save()
    after = decode((folder / "settings.json").read_bytes(), dict)
    assert (after.pop("version"), after.pop("guide_introduced"), after["load"].pop("chat_cache_mib")) == (3, False, -1)
    assert (before.pop("version"), before.pop("guide_kept"), before["load"].pop("kept_cache_mib")) == (1, False, -1)
    assert after.pop("model_loads") == {"/models/t\udcff.gguf": msgspec.to_builtins(values.load)}
    assert after == before  # what belonged to all chats too, until it is somewhere else
    file.former = None
    file.save()
    assert not {"seed", "sampling", "drafter"} & decode((folder / "settings.json").read_bytes(), dict).keys()


def test_settings_under_older_names(tmp_path: Path) -> None:
    """Written by commit 0465daa, as version 1."""
    path = Path(shutil.copy(UNDER_OLDER_NAMES / "settings.json", tmp_path))
    for length in (None, 8):
        file = SettingsFile(path)
        assert (file.notice, file.values.guide_introduced, file.values.draft_length) == (None, True, length)
        assert file.values.load == LoadSettings(context_length=4096, chat_cache_mib=512)
        file.values.draft_length = 8
        file.save()
    saved = decode(path.read_bytes(), dict)
    assert saved["version"] == 3 and not {"guide_kept", "kept_cache_mib"} & {*saved, *saved["load"]}


def test_what_was_measured(folder: Path) -> None:
    trial = Trials(folder / "trials.json").get(FileKey("target.gguf", 10, 20), FileKey("draft.gguf", 5, 6))
    assert trial is not None and (trial.acceptance_rate, trial.drafted_speed, trial.tokens) == (0.75, 18.0, 200)
    key = PlainKey("target.gguf", 10, 20, 2048, 2, 0, "f16", "greedy")
    assert Measurements(folder / "measurements.json").plain_speed(key) == 41.5


def test_the_library(folder: Path) -> None:
    origin = Origins(folder / "origins.json").get(MODEL)
    assert origin is not None and (origin.repository, origin.licence, origin.size) == ("owner/one", "mit", 5)
    assert list(Usage(folder / "usage.json").all()) == [str(MODEL)]
    index = LibraryIndex(folder / "library.json")
    record = index.records[str(MODEL)]
    assert record.summary is not None and record.summary.architecture == "llama"
    assert index.differences == {("a" * 64, "b" * 64): None}


def test_downloads(folder: Path) -> None:
    assert has_work(folder / "downloads.json")
    queue = QueueFile(folder)
    items, notice = queue.read()
    queue.release()
    assert notice is None
    assert [(saved.item.title, saved.state, saved.message) for saved in items] == [
        ("One", ItemState.QUEUED, ""),
        ("Two", ItemState.PAUSED, "full"),
    ]


def test_a_download_that_had_begun(folder: Path) -> None:
    (folder / "one.gguf.part").write_bytes(b"abc")
    file = RemoteFile(repository="owner/one", commit="0" * 40, path="one.gguf", size=5, sha256="1" * 64)
    with Part(folder / "one.gguf", file) as part:
        assert (part.size, part.etag) == (3, "etag")


def test_what_the_engine_learnt(folder: Path) -> None:
    costs = KeyedFile(folder / "costs.json", MeasuredCosts)
    learnt = MeasuredCosts(Costs(verify={1: 0.5, 2: 0.625, 6: 0.75}, draft=0.125), Build("engine", "driver"), 0.5)
    assert costs.get(KEY) == learnt
    figures = KindFigures(kind="code", tokens=100, seconds=2.0, tested=80, accepted=60, verify_passes=20)
    priors = {"coupled": {"code": AcceptancePrior({"coupled": RatePrior(0.75, 20.0)})}}
    assert history_file(folder / "history.json").get(KEY) == Remembered([figures], priors)  # type: ignore[arg-type]
    tried = RollBackSupport(longest_draft=8, snapshots=8, can_restore=True, can_cut=False)
    assert KeyedFile(folder / "rolling_back.json", RollBackSupport).get(KEY) == tried
    costs.put("1" * 24, learnt)
    assert version_of((folder / "costs.json").read_bytes()) == 1
    again = KeyedFile(folder / "costs.json", MeasuredCosts)
    assert again.get(KEY) == again.get("1" * 24) == learnt


def test_what_was_learnt_of_pairs_under_older_names(tmp_path: Path) -> None:
    """Written by commit 0465daa, as version 1."""
    path = Path(shutil.copy(UNDER_OLDER_NAMES / "history.json", tmp_path))
    figures = KindFigures(kind="code", tokens=100, seconds=2.0, tested=80, accepted=60, verify_passes=20)
    calibration = ((0.5, 8.0), (0.75, 4.0))

    def learnt(rate: float) -> Remembered:
        rates = {"coupled": RatePrior(rate, 20.0, calibration), "ngram": RatePrior(0.25, 9.0)}
        return Remembered([figures], {"coupled": {"code": AcceptancePrior(rates, -0.125, 30.0)}})

    history = history_file(path)
    assert version_of(path.read_bytes()) == 1
    assert (history.get(KEY), history.get("1" * 24)) == (learnt(0.75), learnt(0.5))
    history.put(KEY, learnt(0.875))
    assert version_of(path.read_bytes()) == 2
    again = history_file(path)
    assert (again.get(KEY), again.get("1" * 24)) == (learnt(0.875), learnt(0.5))


def test_engines_that_put_at_once_lose_nothing(folder: Path) -> None:
    one, other = (KeyedFile(folder / "rolling_back.json", RollBackSupport) for _ in range(2))
    tried = RollBackSupport(longest_draft=1, snapshots=1, can_restore=False, can_cut=False)
    assert other.get("1") is None
    one.put("1", tried)
    other.put("2", tried)
    assert one.get("2") == other.get("1") == tried
