"""Files of models, chats, settings and downloads that were damaged: each gets a plain sentence, or is read."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from app.chats.model import unpack
from app.chats.presets import Presets
from app.chats.settings import ChatSettings, chat_settings
from app.chats.store import ChatStore
from app.models.downloads.queue import DownloadQueue
from app.models.downloads.transfer import Backoff
from app.models.hub.network import Network, NetworkSettings
from app.settings import SettingsFile
from app.system import KnownError
from app.ui.chat.footer import details_of, footer_of, note_of
from tests.proof.conftest import Proof, StartWindow
from tests.proof.damage import check_sentence, damaged, damaged_json
from tests.proof.data_folder import bugs
from tests.proof.window_process import WindowProcess
from tests.support import damaged_headers
from tests.support.chats import add_question, begin_answer
from tests.support.hub_server import HubServer
from tests.support.raw_gguf import mutations

pytestmark = [pytest.mark.timeout(4 * 3600), pytest.mark.allow_logs]

DATA = Path(__file__).parent.parent / "data"


# ---------------------------------------------------------------- models


def test_damaged_models(proof: Proof, tmp_path: Path) -> None:
    wanted = proof.count(100, 2000, 10_000)
    outcomes: Counter[str] = Counter()
    for make, share in damaged_headers.SHARES.items():
        folder = tmp_path / make.__name__
        folder.mkdir()
        path = make(folder)
        opened = min(folder.glob("*.gguf"))
        data, header_bytes = path.read_bytes(), damaged_headers.header_size(path)
        seed = proof.chance.randrange(2**32)
        for changed in mutations(data, header_bytes, round(wanted * share), seed):
            path.write_bytes(changed)
            outcomes["read" if damaged_headers.reads(opened) else "refused"] += 1
            proof.progress(f"{outcomes.total()} of {wanted}: {dict(outcomes)}")
        shutil.rmtree(folder)
    proof.found(f"{outcomes.total()} damaged headers: {outcomes['refused']} refused with a sentence, the rest read")


def test_damaged_models_in_the_library(proof: Proof, tmp_path: Path, start_window: StartWindow) -> None:
    wanted, home = proof.count(40, 300, 2000), tmp_path / "home"
    models = home / "models" / "somebody" / "models-GGUF"
    models.mkdir(parents=True)
    window = start_window(home, "idle")
    window.wait_for("ready")
    window.say("show_library")
    own = len(window.wait_for("library"))  # the guide's files
    opening = window.slow()
    path = damaged_headers.plain(tmp_path)
    changes = mutations(path.read_bytes(), damaged_headers.header_size(path), wanted, proof.chance.randrange(2**32))
    for number, changed in enumerate(changes):
        (models / f"{number}.gguf").write_bytes(changed)
    window.say("forget_steps")
    window.say("show_library")
    assert window.wait_until(lambda: len(window.told["library"][-1]) == own + wanted, "all are listed")
    problems = window.told["library"][-1]
    for problem in filter(None, problems):
        check_sentence(problem)
    slow = window.slow()
    assert window.end() == (0, [])
    assert not bugs(home)
    refused = sum(map(bool, problems))
    proof.found(f"{wanted} damaged models listed, {refused} of them with a sentence; {slow}; at its opening, {opening}")


# ---------------------------------------------------------------- the app's own files


def _chats(folder: Path, chance: random.Random) -> Path:
    """A chat file as this version or an older one wrote it, with some chats or many."""
    path = folder / "chats.sqlite"
    older = list(DATA.glob("chats-version-*.sqlite"))
    if chance.random() < 0.3:
        shutil.copyfile(chance.choice(older), path)
        return path
    with ChatStore(path) as store:
        for number in range(chance.choice((1, 5))):
            chat, parent = store.create_chat(f"Chat {number}"), None
            for turn in range(chance.choice((1, 10))):
                asked = add_question(store, chat.id, parent, f"Question {turn} " + "and so on " * 50)
                parent = begin_answer(store, chat.id, asked.id).id
                store.update_answer(parent, "An answer", [[9, "model", 1, None]])
            store.set_unsent(chat.id, "half a sentence")
    return path


def _use_chats(path: Path) -> str:
    """Open the chats and do everything with them that a start and a look at each chat does."""
    with ChatStore(path) as store:
        if store.notice:
            check_sentence(store.notice)
        store.tidy()
        store.mark_interrupted()
        for chat in [*store.chats(), *store.trash()]:
            branch = store.branch(chat.id)
            store.unsent(chat.id)
            chat_settings(chat.settings)
            for message in branch:
                # As the transcript shows it.
                pieces = unpack(message.text, message.provenance, message.thinking)
                assert "".join(piece.text for piece in pieces if not piece.thinking) == message.text
                assert message.asked.sampling
                assert isinstance(f"{footer_of(message)} {note_of(message)} {details_of(message)}", str)
        store.search("question")
        while store.update_index():
            pass
        chat = store.create_chat("after the damage")
        add_question(store, chat.id, None, "still here")
        return "put aside" if store.notice else "read"


def _outcome(use: Callable[[], str]) -> str:
    try:
        return use()
    except KnownError as error:
        check_sentence(str(error))
        return "refused"


def test_damaged_chats(proof: Proof, tmp_path: Path) -> None:
    wanted = proof.count(30, 200, 1000)
    outcomes: Counter[str] = Counter()
    for number in range(wanted):
        chance = random.Random(f"{proof.seed} {number}")
        folder = tmp_path / f"chats {number}"
        folder.mkdir()
        path = _chats(folder, chance)
        path.write_bytes(damaged(path.read_bytes(), chance))
        with proof.naming(f"chats {number}"):
            outcomes[_outcome(partial(_use_chats, path))] += 1
            # What was wrong is over with the next start, or is said again; nothing is thrown away.
            again = _outcome(partial(_use_chats, path))
        outcomes[f"{again} at the second start"] += again != "read"
        shutil.rmtree(folder)
        proof.progress(f"{number + 1} of {wanted}: {dict(outcomes)}")
    proof.found(f"{wanted} damaged chat files: {_listed(outcomes)}")


def _use_settings(path: Path) -> str:
    file = SettingsFile(path)
    if file.notice:
        check_sentence(file.notice)
    file.values.zoom = 110
    file.save()
    again = SettingsFile(path)
    assert again.values.zoom == 110 or again.notice
    return "put aside" if list(path.parent.glob("*.broken-*")) else "read"


def _use_presets(path: Path) -> str:
    presets = Presets(path)
    for name in presets.names():
        presets.get(name)
    presets.save("After the damage", ChatSettings())
    return "put aside" if list(path.parent.glob("*.broken-*")) else "read"


def _use_queue(path: Path, hub: HubServer) -> str:
    """The real queue, which begins at once to download what there is."""
    network = Network(NetworkSettings(endpoint=hub.endpoint))
    queue = DownloadQueue(network, path.parent, path.parent / "models", backoff=Backoff(0.01, 0.01))
    try:
        if queue.notice:
            check_sentence(queue.notice)
        for one in queue.progress():
            queue.pause(one.item.id)
            queue.cancel(one.item.id)
    finally:
        queue.close()
    return "put aside" if queue.notice else "read"


def _sources(folder: Path) -> dict[str, list[Path]]:
    """Sound files of each kind, of this version and of older ones."""
    presets = Presets(folder / "presets.json")
    for name in ("Brief", "Poems"):
        presets.save(name, ChatSettings(system_prompt=name, seed=7))
    presets.set_default("Brief", "/models/a.gguf")
    return {
        "settings.json": [*DATA.glob("settings-*.json"), *DATA.glob("*/settings.json")],
        "downloads.json": list(DATA.glob("*/downloads.json")),
        "presets.json": [folder / "presets.json"],
    }


def test_damaged_settings_and_lists(proof: Proof, tmp_path: Path) -> None:
    wanted = proof.count(40, 300, 1000)
    outcomes: Counter[str] = Counter()
    with HubServer() as hub:
        uses: dict[str, Callable[[Path], str]] = {
            "settings.json": _use_settings,
            "downloads.json": lambda path: _use_queue(path, hub),
            "presets.json": _use_presets,
        }
        sources = _sources(tmp_path)
        for number in range(wanted):
            chance = random.Random(f"{proof.seed} {number}")
            name = chance.choice(list(uses))
            source = chance.choice(sources[name])
            folder = tmp_path / f"files {number}"
            folder.mkdir()
            (folder / name).write_bytes(damaged_json(source.read_bytes(), chance))
            with proof.naming(f"{name} {number}"):
                outcomes[_outcome(partial(uses[name], folder / name))] += 1
            shutil.rmtree(folder)
            proof.progress(f"{number + 1} of {wanted}: {dict(outcomes)}")
    proof.found(f"{wanted} damaged settings, presets and lists of downloads: {_listed(outcomes)}")


def _damaged_home(home: Path, chance: random.Random) -> None:
    """Files of a user, most of them damaged."""
    home.mkdir()
    chats = _chats(home, chance)
    chats.write_bytes(damaged(chats.read_bytes(), chance))
    for source in (DATA / "version-aa1f71ac").glob("*.json"):
        content = source.read_bytes()
        (home / source.name).write_bytes(damaged_json(content, chance) if chance.random() < 0.7 else content)
    (home / "cache").mkdir()
    (home / "loading.json").write_bytes(chance.randbytes(20))


def _notices_of(window: WindowProcess) -> list[str]:
    """What it says at its start, after a question was stored; if it can't start, it says why and ends."""
    if not window.wait_until(lambda: window.counts["ready"] > 0, "ready"):
        window.end()
        check_sentence(window.errors.strip())
        return []
    notices = list(window.told["ready"][-1].values())
    if not any("Nothing was changed" in text for text in notices):  # a file of chats that is refused takes no question
        window.say("ask", "What is a draft model?")
        assert window.wait_until(lambda: bool(window.acknowledged), "saved")
    for text in notices:
        check_sentence(text.replace("\n", " "))
    return notices


def test_starts_with_damaged_files(proof: Proof, tmp_path: Path, start_window: StartWindow) -> None:
    """All of them at once, in the real window."""
    wanted, slowest, told = proof.count(2, 20, 200), (0, ""), 0
    for number in range(wanted):
        home = tmp_path / f"home {number}"
        _damaged_home(home, random.Random(f"{proof.seed} {number}"))
        window = start_window(home, "idle")
        told += len(_notices_of(window))
        if window.counts["ready"]:
            slow = window.slow()
            slowest = max(slowest, (window.told.get("longest step", [[0, 0]])[-1][0], slow))
            status, left = window.end()
            assert (status, left) == (0, []), window.errors
        assert not bugs(home), f"home {number}"
        shutil.rmtree(home)
        proof.progress(f"{number + 1} of {wanted} starts")
    proof.found(f"{wanted} starts with damaged files: {told} notices; {slowest[1]}")


def _listed(outcomes: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in outcomes.items() if count)
