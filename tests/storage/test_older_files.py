"""The whole folder of commit aa1f71ac (``tests/data/version-aa1f71ac``), which was killed while an answer streamed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from app.chats.attachments import attachments_folder
from app.chats.database import OLDEST, VERSION, backup_folder
from app.chats.model import unpack
from app.chats.presets import Presets
from app.chats.settings import ChatSettings, chat_settings
from app.chats.store import ChatStore
from app.engine.host.chat_cache_files import ChatCacheFiles
from app.engine.llama.checkpoints import RollBackSupport
from app.engine.policy.acceptance import AcceptancePrior, RatePrior, Remembered, history_file
from app.engine.policy.calibration import METHOD, Build, MeasuredCosts, costs_file, up_to_date
from app.models.downloads.item import ItemState, QueueFile, has_work
from app.models.downloads.part import Part
from app.models.library.index import LibraryIndex
from app.models.library.library import Library
from app.models.measurements import FileKey, PlainKey, plain_speeds, trials_file
from app.models.origins import origins_file
from app.protocol.answering import SamplingChoice
from app.protocol.events import KindFigures
from app.protocol.options import LoadSettings
from app.settings import Pair, SettingsFile
from app.storage.json_file import KeyedFile
from tests.support.simulator import pair_costs

DATA = Path(__file__).parent.parent / "data" / "version-aa1f71ac"
KEY, OTHER = "0" * 24, "1" * 24
MEASURED = pair_costs({1: 0.5, 2: 0.625, 6: 0.75}, 0.125)
ONE, TWO = "/models/owner/one/one.gguf", "/models/owner/two/two.gguf"
TRIED = RollBackSupport(longest_draft=8, snapshots=8, can_restore=True, can_cut=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    # New times: what nobody used for a month is deleted.
    return Path(shutil.copytree(DATA, tmp_path / "home", copy_function=shutil.copy))


def test_chats(home: Path) -> None:
    with ChatStore(home / "chats.sqlite") as store:
        assert store.notice is None
        store.mark_interrupted()
        titles = {chat.id[0]: chat.title for chat in store.chats()}
        assert titles == {
            "a": "Wie wird das Wetter in Tromsø?",
            "b": "Renamed by hand",
            "c": "",
            "d": "What was the app writing when it was…",
            "e": "Which tea?",
        }
        (folder,) = store.folders()
        tea = store.chat("e" * 32)
        assert (tea.folder_id, folder.name, tea.pinned_at is not None) == (folder.id, "Ordner", True)
        assert chat_settings(tea.settings) == ChatSettings(preset="Brief", system_prompt="Be brief.")
        asked, answer, _again, cut = store.branch(tea.id)
        (table,) = asked.attachments
        assert (table.name, table.text, table.media_type) == ("Übersicht.csv", "Tee,Grad\nSencha,80\n", "text/csv")
        assert (answer.text, answer.thinking, list(answer.tokens)) == ("80 °C.", "A sketch.", [1, 2, 3])
        assert (answer.seed, answer.settings, answer.figures) == (7, {"seed": 7}, {"completion_tokens": 3})
        pieces = unpack(answer.text, answer.provenance, answer.thinking)
        assert [(one.text, one.drafter, one.round, one.thinking) for one in pieces] == [
            ("A sketch.", "mtp", 1, True),
            ("80 ", None, 1, False),
            ("°C.", "model", 2, False),
        ]
        assert (cut.text, cut.status) == ("It was writing th", "interrupted")
        assert (store.unsent(tea.id), store.unsent(None)) == ("half a sentence", "A chat to come\nwith two lines")
        snow = store.branch("a" * 32)[1]
        cold, follow, mild = store.select_version(snow.id, -1)[1:]
        assert [cold.text, follow.text, mild.text] == ["Kalt, klar und dunkel.", "Und in 東京?", "Mild."]
        assert (mild.status, mild.finish_reason, mild.seed) == ("stopped", "cancelled", 2**63 - 1)
        assert {one.chat.id[0] for one in store.search("wetter")} == {"a"}
        assert {one.chat.id[0] for one in store.search("tea")} == {"e"}
    if VERSION > OLDEST:
        assert list(backup_folder(home / "chats.sqlite").glob(f"chats-before-version-{VERSION}-*.sqlite"))


def test_a_backup_comes_back(home: Path) -> None:
    for ending in ("", "-wal"):
        (home / f"chats.sqlite{ending}").write_bytes(b"damaged" * 1000)
    shutil.rmtree(attachments_folder(home / "chats.sqlite"))
    with ChatStore(home / "chats.sqlite") as store:
        assert store.notice is not None and "backup of 2026-11-20" in store.notice
        assert len(store.chats()) == 5
        asked, answer = store.branch("e" * 32)
        assert (asked.attachments[0].text, answer.text) == ("Tee,Grad\nSencha,80\n", "80 °C.")


def test_settings(home: Path) -> None:
    path = home / "settings.json"
    before = json.loads(path.read_bytes())
    file = SettingsFile(path)
    values = file.values
    assert file.notice is None
    assert values.last_pair == Pair(ONE, "/models/owner/one/draft.gguf")
    assert values.recent_pairs == [values.last_pair, Pair("qwen", server="http://gpu-box:8000"), Pair(TWO)]
    assert values.load_for(ONE) == LoadSettings(context_length=8192, expert_layers_on_cpu=0)
    assert values.load_for(TWO) == LoadSettings(context_length=4096)
    assert (values.head_for(ONE), values.draft_length, values.zoom, values.theme) == ("on", 5, 110, "dark")
    defaults = json.loads(msgspec.json.encode(LoadSettings()))
    for load in (before["load"], *before["model_loads"].values()):
        load.update({name: value for name, value in defaults.items() if name not in load})  # what can be chosen now
    after = json.loads(msgspec.json.encode(values))
    kept = before.keys() & after.keys()
    assert {name: before[name] for name in kept} == {name: after[name] for name in kept}
    file.save()
    assert json.loads(path.read_bytes()).items() >= before.items()  # also what this version doesn't know


def test_presets(home: Path) -> None:
    presets = Presets(home / "presets.json")
    assert (presets.notice, presets.names()) == (None, ["Brief", "My settings"])
    assert presets.default_for(ONE) == ChatSettings(
        preset="Brief", system_prompt="Be brief.", thinking_budget=512, sampling=SamplingChoice(temperature=0.2)
    )
    mine = presets.default_for(TWO)
    assert (mine.preset, mine.sampling.top_k, mine.seed, mine.stop) == ("My settings", 20, 7, ["###"])
    presets.rename("Brief", "Short")
    assert Presets(home / "presets.json").names() == ["My settings", "Short"]


def test_downloads(home: Path) -> None:
    assert has_work(home / "downloads.json")
    queue = QueueFile(home)
    items, notice = queue.read()
    queue.release()
    assert notice is None
    assert [(saved.item.title, saved.state, saved.message, bool(saved.page)) for saved in items] == [
        ("One", ItemState.QUEUED, "", False),
        ("Two", ItemState.PAUSED, "full", True),
        ("Three", ItemState.DONE, "", False),
    ]
    with Part(home / "models" / "one.gguf", items[0].item.target[0]) as part:
        assert part.size == 3


def test_the_library(home: Path) -> None:
    index = LibraryIndex(home / "library.json")
    assert [(record.title, record.hidden) for record in index.records.values()] == [
        ("One, as it knew it", False),
        ("two", True),
    ]
    record = index.records[ONE]
    assert record.summary is not None and record.summary.architecture == "llama"
    assert index.differences == {("a" * 64, "b" * 64): None}
    origins = origins_file(home)
    for path in (ONE, TWO):
        origin = origins.get(Path(path))
        assert origin is not None and (origin.license, origin.downloaded_at) == ("mit", 1_790_000_000)
    assert Library(home / "models", (), home).used.all() == {ONE: 1_795_879_825}


def test_what_was_measured(home: Path) -> None:
    trial = trials_file(home).get((FileKey("target.gguf", 10, 20), FileKey("draft.gguf", 5, 6)))
    assert trial is not None
    assert (trial.trial.acceptance_rate, trial.trial.drafted_speed, trial.trial.tokens) == (0.75, 18.0, 200)
    keys = [PlainKey("target.gguf", 10, 20, length, 2, 0, "f16", "greedy") for length in (2048, 4096)]
    speeds = plain_speeds(home).all()
    assert [(key, one.tokens_per_second) for key, one in speeds.items()] == list(zip(keys, (41.5, 42.5), strict=True))


def test_what_the_engine_learned(home: Path) -> None:
    cache = home / "cache"
    measured = MeasuredCosts(MEASURED, Build("engine", ""), 0.5, METHOD)
    known = costs_file(cache / "costs.json").get(KEY)
    assert known == measured
    assert up_to_date(known, measured.build, pytest.fail, MEASURED.drafts) == (measured, None)
    assert KeyedFile(cache / "rolling_back.json", RollBackSupport).get(OTHER) == TRIED
    figures = KindFigures(kind="code", tokens=100, seconds=2.0, tested=80, accepted=60, verify_passes=20)
    prior = AcceptancePrior({"coupled": RatePrior(0.75, 20.0, ((0.5, 8.0),))}, -0.125, 30.0)
    learned = Remembered([figures], {"coupled": {"model": {"code": prior}}})
    history = history_file(cache / "history.json")
    assert history.get(KEY) == history.get(OTHER) == learned


def test_kv_caches(home: Path) -> None:
    files = ChatCacheFiles(home / "cache" / "chats")
    (file,) = files.of("0123456789abcdef")
    read = files.read(file, lambda: False)
    assert read is not None and read.least == 2
    assert (read.tokens.tolist(), read.data.tolist()) == ([3, 4, 5, 6, 7], list(range(40)))
