"""Images in the whole window, with a real engine: the projector that a model lacks is offered, downloaded and used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app import system
from app.models.hub.catalog import load_catalog
from app.protocol.options import LoadSettings
from app.ui.chat.footer import figures_of
from app.ui.engine.pair_names import PairFiles
from tests.support.hub_server import HubServer
from tests.support.vision_models import CELLS, make_image, make_projector, make_seeing_model
from tests.ui.chat.test_attachments import drop, mime
from tests.ui.shell.running import WAIT_MS, button
from tests.ui.shell.test_messages import SETTINGS, Chatting

KNOWN = next(model for model in load_catalog().models if model.id == "qwen3.5-4b")


class WithImages(Chatting):
    def load(self, target: Path, *, anyway: bool = True) -> None:
        files = PairFiles(str(target), None, LoadSettings(context_length=1024, threads=1))
        with self.qtbot.waitSignal(self.ctx.loader.pair_opened, timeout=WAIT_MS):
            self.ctx.loader.load(files, anyway=anyway)
        self.ready()

    def drop(self, path: str) -> None:
        drop(self.window.drop_area, mime(path))
        self.qtbot.waitUntil(
            lambda: not self.model.unsent.reading and (bool(self.model.unsent.attachments) or "blind" in self.notices())
        )

    def notices(self) -> dict[str, str]:
        return {subject: one.text for subject, one in self.ctx.notices.notices().items()}


@pytest.fixture
def running(qtbot: QtBot) -> Iterator[WithImages]:
    window = WithImages(qtbot)
    window.begin()
    yield window
    window.close()


@pytest.mark.usefixtures("guide_pair")
def test_the_projector_is_offered_downloaded_and_used(running: WithImages, server: HubServer, tmp_path: Path) -> None:
    running.settings.values.hub_endpoint = server.endpoint
    server.add(
        KNOWN.files[0].repository,
        {
            "mmproj-F16.gguf": make_projector(tmp_path / "other.gguf", "llava", target_width=128),
            "mmproj-BF16.gguf": make_projector(tmp_path / "own.gguf", "llava"),
        },
    )
    folder = tmp_path / "mine"
    folder.mkdir()
    running.load(make_seeing_model(folder / KNOWN.files[0].file, "llava"))
    image = make_image(tmp_path / "a.png").path
    running.drop(image)
    assert running.notices()["blind"] == (
        "To see images, this model needs a second file, its projector (672 MB to download)."
    )
    assert not running.model.unsent.attachments
    button(running.window.notice_bar, "Get it").click()
    running.qtbot.waitUntil(lambda: "downloaded" in running.notices(), timeout=WAIT_MS)
    assert running.notices()["downloaded"].startswith("Qwen3.5 4B: projector for images has been downloaded")
    assert [path.name for path in folder.glob("*mmproj*")] == ["Qwen3.5-4B-Q4_K_M.mmproj-BF16.gguf"]
    with running.qtbot.waitSignal(running.ctx.loader.pair_opened, timeout=WAIT_MS):
        button(running.window.notice_bar, "Load").click()
    running.ready()
    running.drop(image)
    assert [one.name for one in running.model.unsent.attachments] == ["a.png"] and "blind" not in running.notices()
    running.ask("What is this?")
    assert running.model.messages[-1].status == "complete" and running.model.messages[-1].text


@pytest.mark.usefixtures("guide_pair")
def test_a_temporary_chat_has_images_until_it_is_left(running: WithImages, tmp_path: Path) -> None:
    (tmp_path / "blind").mkdir()
    running.load(make_seeing_model(tmp_path / "blind" / "unknown.gguf", "llava"))
    running.drop(make_image(tmp_path / "a.png").path)
    assert running.notices()["blind"].startswith("This model can't see images.")
    assert "get_projector" not in running.ctx.notices.notices()["blind"].actions
    make_projector(tmp_path / "mmproj.gguf", "llava")
    running.load(make_seeing_model(tmp_path / "seeing.gguf", "llava"), anyway=False)
    running.chats.new_temporary()
    running.model.set_settings(SETTINGS)
    running.drop(str(tmp_path / "a.png"))
    running.qtbot.waitUntil(lambda: bool(running.model.unsent.attachments), timeout=WAIT_MS)
    running.type("What is this?")
    running.qtbot.waitUntil(lambda: not running.model.state.is_busy, timeout=WAIT_MS)
    question, answer = running.model.messages
    path = Path(question.attachments[0].path)
    assert answer.status == "complete" and figures_of(answer.figures).prompt_tokens > CELLS["llava"]
    assert path.is_file() and not path.is_relative_to(system.data_dir())
    running.chats.new()
    running.qtbot.waitUntil(lambda: not path.exists(), timeout=WAIT_MS)
