"""Files of older versions.

``tests/data/version-324c867``: before there were locks, some without a version. ``version-0465daa``: under older names.
``version-39612d7``: costs before passes were padded.
``version-4b42be7``: the whole folder of 0.1.0.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from app.chats.model import unpack
from app.chats.schema import VERSION
from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.engine.host.chat_cache_files import ChatCacheFiles
from app.engine.llama.checkpoints import RollBackSupport
from app.engine.policy.acceptance import AcceptancePrior, RatePrior
from app.engine.policy.calibration import METHOD, Build, MeasuredCosts, costs_file, up_to_date
from app.engine.policy.costs import Costs
from app.engine.policy.draft_costs import DraftCosts
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
from app.protocol.events import KindFigures
from app.protocol.options import DrafterName, LoadSettings, Sampling
from app.settings import FormerSettings, Pair, SettingsFile
from app.storage.json_file import decode, version_of
from app.storage.keyed_file import KeyedFile
from tests.support.simulator import pair_costs

UNDER_OLDER_NAMES = Path(__file__).parent.parent / "data" / "version-0465daa"
BEFORE_PADDING = Path(__file__).parent.parent / "data" / "version-39612d7"
KEY = "0" * 24
MEASURED = pair_costs({1: 0.5, 2: 0.625, 6: 0.75}, 0.125)
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
    assert (after.pop("version"), after.pop("guide_introduced"), after["load"].pop("chat_cache_mib")) == (5, False, -1)
    assert (before.pop("version"), before.pop("guide_kept"), before["load"].pop("kept_cache_mib")) == (1, False, -1)
    assert after.pop("model_loads") == {"/models/t\udcff.gguf": decode(msgspec.json.encode(values.load), dict)}
    before["load"] = after["load"] | before["load"]  # with the options there are now
    for pair in (before["last_pair"], *before["recent_pairs"]):
        pair["server"] = ""
    assert after.items() >= before.items()  # what belonged to all chats too, until it is somewhere else
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
    assert saved["version"] == 5 and not {"guide_kept", "kept_cache_mib"} & {*saved, *saved["load"]}


def test_what_was_measured(folder: Path) -> None:
    trial = Trials(folder / "trials.json").get(FileKey("target.gguf", 10, 20), FileKey("draft.gguf", 5, 6))
    assert trial is not None and (trial.acceptance_rate, trial.drafted_speed, trial.tokens) == (0.75, 18.0, 200)
    key = PlainKey("target.gguf", 10, 20, 2048, 2, 0, "f16", "greedy")
    assert Measurements(folder / "measurements.json").plain_speed(key) == 41.5


def test_the_library(folder: Path) -> None:
    origin = Origins(folder / "origins.json").get(MODEL)
    assert origin is not None and (origin.repository, origin.license, origin.size) == ("owner/one", "mit", 5)
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


def test_what_the_engine_learned(folder: Path) -> None:
    costs = costs_file(folder / "costs.json")
    learned = MeasuredCosts(MEASURED, Build("engine", "driver"), 0.5)
    assert costs.get(KEY) == learned
    figures = KindFigures(kind="code", tokens=100, seconds=2.0, tested=80, accepted=60, verify_passes=20)
    priors = {"coupled": {"model": {"code": AcceptancePrior({"coupled": RatePrior(0.75, 20.0)})}}}
    assert history_file(folder / "history.json").get(KEY) == Remembered([figures], priors)  # type: ignore[arg-type]
    tried = RollBackSupport(longest_draft=8, snapshots=8, can_restore=True, can_cut=False)
    assert KeyedFile(folder / "rolling_back.json", RollBackSupport).get(KEY) == tried
    costs.put("1" * 24, learned)
    assert version_of((folder / "costs.json").read_bytes()) == 3
    again = costs_file(folder / "costs.json")
    assert again.get(KEY) == again.get("1" * 24) == learned


def test_what_was_learned_of_pairs_under_older_names(tmp_path: Path) -> None:
    """Written by commit 0465daa, as version 1."""
    path = Path(shutil.copy(UNDER_OLDER_NAMES / "history.json", tmp_path))
    figures = KindFigures(kind="code", tokens=100, seconds=2.0, tested=80, accepted=60, verify_passes=20)
    calibration = ((0.5, 8.0), (0.75, 4.0))

    def learned(rate: float) -> Remembered:
        model = AcceptancePrior({"coupled": RatePrior(rate, 20.0, calibration)}, -0.125, 30.0)
        ngrams = AcceptancePrior({"ngram": RatePrior(0.25, 9.0)})
        return Remembered([figures], {"coupled": {"model": {"code": model}, "ngram": {"code": ngrams}}})

    history = history_file(path)
    assert version_of(path.read_bytes()) == 1
    assert (history.get(KEY), history.get("1" * 24)) == (learned(0.75), learned(0.5))
    history.put(KEY, learned(0.875))
    assert version_of(path.read_bytes()) == 3
    again = history_file(path)
    assert (again.get(KEY), again.get("1" * 24)) == (learned(0.875), learned(0.5))


def test_costs_from_before_passes_were_padded(tmp_path: Path) -> None:
    """Written by commit 39612d7, as version 2. Where there is a GPU, they are measured again."""
    path = Path(shutil.copy(BEFORE_PADDING / "costs.json", tmp_path))
    drafts: dict[DrafterName, DraftCosts] = {
        "model": DraftCosts(0.125, 0.0625, 0.0),
        "mtp": DraftCosts(0.25, None, 0.5),
    }
    costs = Costs({1: 0.5, 2: 0.625, 6: 0.75}, drafts, 1.5, {1: 0.0, 6: 0.25})
    on_cpu = MeasuredCosts(costs, Build("engine", ""), 0.5, METHOD)
    on_gpu = MeasuredCosts(costs, Build("engine", "driver"), 0.5, 1)
    store = costs_file(path)
    assert version_of(path.read_bytes()) == 2
    assert (store.get(KEY), store.get("1" * 24)) == (on_cpu, on_gpu)
    assert up_to_date(store.get(KEY), on_cpu.build, pytest.fail, drafts) == (on_cpu, None)
    again, slower = up_to_date(store.get("1" * 24), on_gpu.build, lambda: replace(costs, widths=(8,)), drafts)
    assert (again.costs.widths, again.method, slower) == ((8,), METHOD, None)
    store.put("1" * 24, again)
    assert version_of(path.read_bytes()) == 3
    assert (costs_file(path).get(KEY), costs_file(path).get("1" * 24)) == (on_cpu, again)


def test_engines_that_put_at_once_lose_nothing(folder: Path) -> None:
    one, other = (KeyedFile(folder / "rolling_back.json", RollBackSupport) for _ in range(2))
    tried = RollBackSupport(longest_draft=1, snapshots=1, can_restore=False, can_cut=False)
    assert other.get("1") is None
    one.put("1", tried)
    other.put("2", tried)
    assert one.get("2") == other.get("1") == tried


# ---------------------------------------------------------------- the whole folder of 0.1.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder that 0.1.0 (commit 4b42be7) wrote as ``SLIPSTREAM_HOME``, and was killed while an answer streamed."""
    # New times: what nobody used for a month is deleted.
    copied = shutil.copytree(
        Path(__file__).parent.parent / "data" / "version-4b42be7", tmp_path / "home", copy_function=shutil.copy
    )
    return Path(copied)


def test_the_chats_of_0_1_0(home: Path) -> None:
    worker = ChatWorker(home / "chats.sqlite")
    opened = worker.opened.result()
    assert (opened.notice, opened.may_have_copies) == (None, True)
    worker.submit(ChatStore.finish_erasing)
    worker.close()
    with ChatStore(home / "chats.sqlite") as store:
        titles = {chat.id[0]: chat.title for chat in store.chats()}
        assert titles == {
            "a": "Wie wird das Wetter in Tromsø?",
            "b": "Renamed by hand",
            "c": "",
            "d": "What was the app writing when it was…",
        }
        assert all((one.settings, one.folder_id, one.pinned_at) == ("", None, None) for one in store.chats())
        assert (store.unsent("a" * 32), store.unsent(None)) == ("Und morgen", "A chat to come\nwith two lines")
        asked, snow = store.branch("a" * 32)
        assert [asked.text, snow.text] == ["Wie wird das Wetter in Tromsø?", "Schnee."]
        assert ((asked.version, asked.versions), (snow.version, snow.versions)) == ((1, 2), (2, 2))
        assert snow.figures["context_start"] == "x"
        cold, follow, mild = store.select_version(snow.id, -1)[1:]
        assert [cold.text, follow.text, mild.text] == ["Kalt, klar und dunkel.", "Und in 東京?", "Mild."]
        assert (mild.status, mild.finish_reason, mild.seed) == ("stopped", "cancelled", 2**63 - 1)
        assert (cold.pair, cold.settings["system_prompt"]) == ("Guide 16M + guide-draft-1M", "Be brief.")
        assert cold.figures["completion_tokens"] == 6 and list(cold.tokens) == []
        pieces = unpack(cold.text, cold.provenance)
        assert [(one.text, one.drafter, one.round, one.rejected) for one in pieces[:3]] == [
            ("Kalt", None, 1, "nope"),
            (", ", "model", 1, None),
            ("klar ", "model", 1, None),
        ]
        rain = store.select_version(asked.id, 1)[-1]
        assert (rain.text, rain.status) == ("Regen 🙂.", "failed")
        assert rain.figures["failure"] == "The engine ended while this was written."
        assert [one.text for one in store.branch("b" * 32)] == ["A question without an answer"]
        assert [(one.text, one.status) for one in store.branch("d" * 32)][1:] == [("It was writing th", "interrupted")]
        assert {one.chat.id[0] for one in store.search("wetter")} == {"a"}


def test_what_0_1_0_was_to_erase_is_erased_and_not_in_the_trash(home: Path) -> None:
    worker = ChatWorker(home / "chats.sqlite")
    assert worker.opened.result().may_have_copies
    assert worker.submit(ChatStore.trash).result() == []
    worker.close()
    files = [file for file in home.glob("chats.sqlite*") if file.is_file()]
    assert not any(b"Something to be erased" in file.read_bytes() for file in files)
    (before,) = (home / "backups").glob(f"chats-before-version-{VERSION}-*.sqlite")
    assert b"Something to be erased" in before.read_bytes()


def test_a_backup_of_0_1_0_comes_back(home: Path) -> None:
    for ending in ("", "-wal"):
        (home / f"chats.sqlite{ending}").write_bytes(b"damaged" * 1000)
    with ChatStore(home / "chats.sqlite") as store:
        assert store.notice is not None and "backup of 2026-11-20" in store.notice
        assert len(store.chats()) == 3
        assert [one.chat.title for one in store.search("tokio") + store.search("東京")] == [
            "Wie wird das Wetter in Tromsø?"
        ]


def test_the_settings_of_0_1_0(home: Path) -> None:
    before = decode((home / "settings.json").read_bytes(), dict)
    file = SettingsFile(home / "settings.json")
    values = file.values
    assert file.notice is None
    assert values.last_pair == Pair("/models/owner/one/one.gguf", "/models/owner/one/draft.gguf")
    assert values.recent_pairs == [values.last_pair, Pair("/models/owner/two/two.gguf")]
    assert (values.last_chat_id, values.models_folder, values.extra_folders) == ("a" * 32, "/models", ["/models/more"])
    assert (values.hub_endpoint, values.chats_visible) == ("https://mirror.example", False)
    after = msgspec.to_builtins(values)
    before["load"] = msgspec.to_builtins(LoadSettings()) | before["load"]  # with today's options as they were
    for pair in (before["last_pair"], *before["recent_pairs"]):
        pair["server"] = ""  # all were on this computer
    kept = before.keys() & after.keys()
    assert {name: before[name] for name in kept} == {name: after[name] for name in kept}


def test_the_models_and_downloads_of_0_1_0(home: Path) -> None:
    queue = QueueFile(home)
    items, notice = queue.read()
    queue.release()
    assert notice is None
    assert [(saved.item.title, saved.state, saved.message) for saved in items] == [
        ("One", ItemState.QUEUED, ""),
        ("Two", ItemState.PAUSED, "full"),
        ("Three", ItemState.DONE, ""),
    ]
    with Part(home / "models" / "one.gguf", items[0].item.target[0]) as part:
        assert part.size == 3
    index = LibraryIndex(home / "library.json")
    assert [(record.title, record.hidden) for record in index.records.values()] == [
        ("One, as 0.1.0 knew it", False),
        ("two", True),
    ]
    assert index.differences == {("a" * 64, "b" * 64): None}
    origin = Origins(home / "origins.json").get(MODEL)
    assert origin is not None and (origin.license, origin.downloaded_at) == ("mit", 1_790_000_000)
    assert list(Usage(home / "usage.json").all()) == [str(MODEL)]


def test_what_0_1_0_measured_and_learned(home: Path) -> None:
    trial = Trials(home / "trials.json").get(FileKey("target.gguf", 10, 20), FileKey("draft.gguf", 5, 6))
    assert trial is not None and (trial.acceptance_rate, trial.tokens) == (0.75, 300)
    key = PlainKey("target.gguf", 10, 20, 2048, 2, 0, "f16", "greedy")
    assert Measurements(home / "measurements.json").plain_speed(key) == 41.5
    learned = MeasuredCosts(MEASURED, Build("engine", "driver"), 0.5)
    assert costs_file(home / "cache" / "costs.json").get(KEY) == learned
    tried = RollBackSupport(longest_draft=8, snapshots=8, can_restore=True, can_cut=False)
    assert KeyedFile(home / "cache" / "rolling_back.json", RollBackSupport).get(KEY) == tried
    figures = KindFigures(kind="code", tokens=100, seconds=2.0, tested=80, accepted=60, verify_passes=20)
    prior = AcceptancePrior({"coupled": RatePrior(0.75, 20.0, ((0.5, 8.0),))}, -0.125, 30.0)
    assert history_file(home / "cache" / "history.json").get(KEY) == Remembered(
        [figures], {"coupled": {"model": {"code": prior}}}
    )


def test_the_kv_caches_of_0_1_0(home: Path) -> None:
    files = ChatCacheFiles(home / "cache" / "chats")
    (file,) = files.of("0123456789abcdef")
    read = files.read(file, lambda: False)
    assert read is not None and read.least == 2
    assert (read.tokens.tolist(), read.data.tolist()) == ([3, 4, 5, 6, 7], list(range(40)))
