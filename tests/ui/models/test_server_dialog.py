"""File → Open a model on a server…: with the real process for servers, and servers on the loopback."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import keyring
import pytest
from keyring.backends import fail
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.protocol.remote import ServedModel, Server
from app.settings import Pair
from app.storage.secrets import SERVICE
from app.ui.engine.pair_names import PairFiles
from app.ui.models import servers
from app.ui.models.servers import ServerDialog
from tests.support import remote_streams
from tests.support.keyrings import MemoryKeyring
from tests.support.model_server import Asked, ModelServer, Reply
from tests.ui.parts import WAIT_MS, Rig
from tests.ui.recorded_actions import Recorded

FAR = "http://far.example:8000"


@dataclass
class Opening:
    """The dialog, and what came of it."""

    rig: Rig
    window: QWidget

    def __post_init__(self) -> None:
        self.qtbot = self.rig.qtbot
        self.actions = cast(Recorded, self.rig.ctx.actions)
        self.values = self.rig.ctx.settings.values
        self.keys = self.rig.pair_loader.planner.keys
        self.dialog = ServerDialog(self.rig.ctx, self.window)

    @property
    def opened(self) -> list[object]:
        """What was to be loaded."""
        return [values[0] for name, *values in self.actions.done if name == "load_files"]

    def show(self, address: str = "", model: str = "", *, for_key: bool = False) -> ServerDialog:
        self.dialog.ask(address, model, for_key=for_key)
        return self.dialog

    def tested(self, dialog: ServerDialog) -> str:
        """Press Test; what the dialog says when it is done."""
        dialog.test.click()
        self.idle(dialog)
        return said(dialog)

    def idle(self, dialog: ServerDialog) -> None:
        self.qtbot.waitUntil(lambda: dialog.test.isEnabled() and bool(said(dialog)), timeout=WAIT_MS)


def said(dialog: ServerDialog) -> str:
    return dialog.verdict().replace("\u00a0", " ")


@pytest.fixture
def opening(qtbot: QtBot, kept: MemoryKeyring, tmp_path: Path) -> Iterator[Opening]:
    window = QWidget()
    qtbot.addWidget(window)
    rig = Rig(qtbot, tmp_path, "none")
    opening = Opening(rig, window)
    yield opening
    rig.close()


@pytest.fixture
def vllm() -> Iterator[ModelServer]:
    with ModelServer(remote_streams.vllm()) as server:
        yield server


def keyed(server: ModelServer, key: str) -> None:
    """From now on the server wants this key."""
    routes = dict(server.routes)

    def guard(path: str) -> None:
        answer = routes[path]

        def answered(asked: Asked) -> Reply:
            if asked.headers.get("authorization") != f"Bearer {key}":
                return Reply.of({"error": "Unauthorized"}, 401)
            return answer(asked) if callable(answer) else answer

        server.routes[path] = answered

    for path in routes:
        guard(path)


def test_a_test_says_what_is_there(opening: Opening, vllm: ModelServer) -> None:
    dialog = opening.show()
    dialog.address.setText(f"127.0.0.1:{vllm.port}")
    verdict = opening.tested(dialog)
    assert verdict.startswith(f"✓ vLLM 0.29.0 at 127.0.0.1:{vllm.port}\nModel: m · 4,096 tokens of context\n")
    assert "--per-request-spec-decode-metrics summary" in verdict  # the flag that has to be switched on
    assert not vllm.bodies("/v1/chat/completions")  # nothing of a chat was sent
    dialog.open_button.click()
    assert opening.opened == [PairFiles("m", server=vllm.url)]
    assert not dialog.isVisible()


def test_a_key_is_asked_for_stored_and_used_again(opening: Opening, vllm: ModelServer, kept: MemoryKeyring) -> None:
    keyed(vllm, "sesame")
    dialog = opening.show()
    dialog.address.setText(vllm.url)
    assert opening.tested(dialog) == f"127.0.0.1:{vllm.port} needs a key."
    assert dialog.focusWidget() is dialog.key
    dialog.key.setText("wrong")
    assert "refused the key" in opening.tested(dialog)
    assert not kept.entries
    dialog.key.setText("sesame")
    dialog.open_button.click()
    opening.qtbot.waitUntil(lambda: bool(opening.opened), timeout=WAIT_MS)
    assert kept.entries == {(SERVICE, vllm.url): "sesame"}
    again = opening.show()
    again.address.setText(f"127.0.0.1:{vllm.port}")
    assert opening.tested(again).startswith("✓ vLLM 0.29.0")  # with the stored key
    assert again.remove_key.isVisible()
    again.remove_key.click()
    opening.qtbot.waitUntil(lambda: not kept.entries, timeout=WAIT_MS)
    opening.qtbot.waitUntil(lambda: not again.remove_key.isVisible(), timeout=WAIT_MS)


def test_without_a_keyring_a_key_is_kept_for_this_session(opening: Opening, vllm: ModelServer) -> None:
    keyring.set_keyring(fail.Keyring())  # type: ignore[no-untyped-call]
    keyed(vllm, "sesame")
    dialog = opening.show()
    opening.qtbot.waitUntil(lambda: "no keyring" in dialog.key_note(), timeout=WAIT_MS)
    dialog.address.setText(vllm.url)
    dialog.key.setText("sesame")
    dialog.open_button.click()
    opening.qtbot.waitUntil(lambda: bool(opening.opened), timeout=WAIT_MS)
    found: list[tuple[str, str]] = []
    opening.keys.get(vllm.url, lambda key, place: found.append((key, place)))
    opening.qtbot.waitUntil(lambda: bool(found), timeout=WAIT_MS)
    assert found == [("sesame", "memory")]


def test_of_several_models_one_is_chosen(opening: Opening, vllm: ModelServer) -> None:
    entries = [{"id": name, "owned_by": "vllm", "max_model_len": 4096} for name in ("one", "two")]
    vllm.routes["/v1/models"] = Reply.of({"object": "list", "data": entries}, Server="uvicorn")
    dialog = opening.show()
    dialog.address.setText(vllm.url)
    dialog.open_button.click()
    opening.idle(dialog)
    assert "It has 2 models" in said(dialog) and not opening.opened  # which one is up to the user
    assert dialog.model.isVisible() and dialog.chosen_model() == ""
    dialog.model.setCurrentIndex(1)
    dialog.model.activated.emit(1)
    opening.qtbot.waitUntil(lambda: "Model: two" in said(dialog), timeout=WAIT_MS)
    dialog.open_button.click()
    assert opening.opened == [PairFiles("two", server=vllm.url)]
    again = opening.show(vllm.url, "one")  # as it was used the last time
    opening.tested(again)
    assert again.chosen_model() == "one"


def test_what_is_typed_differently_is_tested_again(opening: Opening, vllm: ModelServer) -> None:
    dialog = opening.show()
    dialog.address.setText(vllm.url)
    opening.tested(dialog)
    dialog.address.setText("http://127.0.0.1:9")
    assert said(dialog) == ""
    dialog.open_button.click()
    opening.idle(dialog)
    assert "Nothing answers at 127.0.0.1:9" in said(dialog) and not opening.opened
    dialog.address.setText("")
    dialog.open_button.click()
    assert said(dialog) == "Enter the address of a server first."


def test_offline_only_this_computer_is_asked(opening: Opening, vllm: ModelServer) -> None:
    opening.values.offline = True
    dialog = opening.show()
    dialog.address.setText("http://192.0.2.1:8000")
    assert "192.0.2.1" in opening.tested(dialog) and "✓" not in said(dialog)
    dialog.address.setText(vllm.url)
    assert opening.tested(dialog).startswith("✓")


def test_servers_on_this_computer_are_looked_for_when_asked(
    opening: Opening, vllm: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialog = opening.show()
    assert not vllm.asked and not dialog.found.isVisible()
    dialog.find_button.click()
    opening.qtbot.waitUntil(dialog.find_button.isEnabled, timeout=WAIT_MS)
    server = Server(kind="vllm", version="0.29.0", address=vllm.url, models=[ServedModel(id="m")], is_loopback=True)
    dialog.show_found([server])
    assert dialog.found.item(0).text().replace("\u00a0", " ") == f"vLLM 0.29.0 · 127.0.0.1:{vllm.port} · m"
    dialog.found.itemActivated.emit(dialog.found.item(0))
    opening.idle(dialog)
    assert dialog.address.text() == vllm.url and said(dialog).startswith("✓ vLLM")
    dialog.show_found([])
    assert not dialog.found.isVisible()


def test_known_servers_are_completed_and_their_keys_known(opening: Opening, kept: MemoryKeyring) -> None:
    kept.set_password(SERVICE, FAR, "sesame")
    opening.values.remember_pair(Pair("m", server=FAR))
    dialog = opening.show(FAR, "m", for_key=True)
    assert dialog.focusWidget() is dialog.key
    opening.qtbot.waitUntil(dialog.remove_key.isVisible, timeout=WAIT_MS)
    assert "stored in the system's keyring" in dialog.key_note()
    completer = dialog.address.completer()
    completer.setCompletionPrefix("far")
    assert completer.currentCompletion() == FAR


def test_the_models_of_this_computer_are_one_button_away(opening: Opening) -> None:
    dialog = opening.show()
    dialog.local.click()
    assert opening.actions.done == [("open_models",)] and not dialog.isVisible()


@pytest.mark.parametrize(
    ("address", "is_warned"),
    [
        ("http://far.example:8000", True),
        ("far.example", True),
        ("192.168.1.20:8080", True),
        ("https://far.example", False),
        ("127.0.0.1:8080", False),
        ("http://[::1]:8080", False),
        ("localhost", False),
        ("", False),
        ("http://", False),
        ("http://[", False),
    ],
)
def test_what_is_not_encrypted_is_warned_of(address: str, is_warned: bool) -> None:
    assert bool(servers.warning(address)) is is_warned


def test_a_server_without_models_says_so() -> None:
    server = Server(kind="ollama", address=FAR)
    assert servers.found(server, is_chosen=False).mood == "warning"
    unloaded = Server(kind="llama.cpp", address=FAR, models=[ServedModel(id="m", state="unloaded")])
    assert "isn't loaded there yet" in servers.found(unloaded, is_chosen=True).lines[0]
    assert servers.server_title(Server(kind="openai", address=FAR, needs_key=True)).endswith("needs a key")
