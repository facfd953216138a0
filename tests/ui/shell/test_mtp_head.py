"""A model with an MTP head in the whole window, with a real engine: turned on, remembered, refused, named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QComboBox
from pytestqt.qtbot import QtBot

from app.chats.settings import ChatSettings, SamplingChoice
from app.protocol.events import PairLoaded
from app.protocol.options import LoadSettings
from app.ui.engine.pair_files import PairFiles
from tests.support.mtp_models import make_head_file, make_table_model
from tests.ui.shell.test_main_window import WAIT_MS
from tests.ui.shell.test_messages import Chatting

SMALL = "Models with fewer than 3 billion parameters usually answer faster without it."


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a head inside, the same head in a file of its own, and that of another model."""
    folder = tmp_path_factory.mktemp("heads")
    make_table_model(folder / "model.gguf", "glm4moe")
    make_table_model(folder / "draft.gguf", "qwen35", name="draft")
    make_head_file(folder / "mtp-model.gguf", "glm4moe")
    make_head_file(folder / "mtp-other.gguf", "qwen35")
    return folder


pytestmark = pytest.mark.usefixtures("guide_pair")


class WithHead(Chatting):
    FIRST_SETTINGS = ChatSettings(sampling=SamplingChoice(temperature=0.0), max_tokens=40)

    def load(self, target: Path, draft: Path | None = None) -> PairLoaded:
        files = PairFiles(str(target), str(draft) if draft else None, LoadSettings(context_length=1024, threads=1))
        with self.qtbot.waitSignal(self.controller.pair_loader.pair_opened, timeout=WAIT_MS):
            self.controller.pair_loader.load(files, anyway=True)
        return self.pair()

    def pair(self) -> PairLoaded:
        self.ready()
        pair = self.controller.pair_loader.pair()
        assert pair is not None
        return pair

    def choose_head(self, choice: str) -> PairLoaded:
        """In the Speed panel."""
        box = self.head_box()
        with self.qtbot.waitSignal(self.controller.pair_loader.pair_opened, timeout=WAIT_MS):
            box.setCurrentIndex(box.findData(choice))
            box.activated.emit(box.currentIndex())
        return self.pair()

    def head_box(self) -> QComboBox:
        box = self.window.speed_panel.head.findChild(QComboBox)
        assert isinstance(box, QComboBox)
        return box

    def notice(self) -> str:
        found = self.controller.notice_list.notices().get("draft")
        return found.text if found else ""


@pytest.fixture
def chatting(qtbot: QtBot) -> Iterator[WithHead]:
    chatting = WithHead(qtbot)
    chatting.begin()
    yield chatting
    chatting.close()


def test_a_head_that_is_off_says_why_and_can_be_turned_on(chatting: WithHead, heads: Path) -> None:
    head, target = chatting.window.speed_panel.head, heads / "model.gguf"
    pair = chatting.load(target)
    assert (pair.has_head, pair.head_off) == (False, SMALL)
    assert not head.isHidden() and chatting.head_box().accessibleDescription() == SMALL
    assert "MTP head" not in chatting.window.top_bar.pair.text()

    pair = chatting.choose_head("on")
    assert pair.has_head and pair.head_off is None and pair.head_file is None
    assert chatting.window.top_bar.pair.text().endswith("· MTP head")
    assert chatting.head_box().accessibleDescription() == ""
    values = chatting.controller._settings.values
    assert values.model_heads == {str(target): "on"}

    pair = chatting.choose_head("auto")
    assert not pair.has_head and values.model_heads == {}


def test_a_head_that_is_turned_on_beside_a_draft_model_drafts_with_it(chatting: WithHead, heads: Path) -> None:
    pair = chatting.load(heads / "model.gguf", heads / "draft.gguf")
    assert pair.draft is not None and not pair.has_head
    assert chatting.head_box().accessibleDescription() == "A draft model was chosen instead."
    pair = chatting.choose_head("on")
    assert pair.draft is not None and pair.has_head
    assert "MTP head" in (title := chatting.window.top_bar.pair.text()) and "draft" in title
    tip = chatting.window.top_bar.pair.toolTip()
    assert "Draft: draft" in tip and "MTP head: inside the target" in tip


def test_a_head_of_another_model_is_refused_in_a_notice(chatting: WithHead, heads: Path) -> None:
    pair = chatting.load(heads / "model.gguf", heads / "mtp-other.gguf")
    assert not pair.has_head
    assert chatting.notice().startswith("The MTP head in mtp-other.gguf belongs to another model.")
    pair = chatting.load(heads / "model.gguf", heads / "mtp-model.gguf")
    assert pair.has_head and pair.head_file is not None and Path(pair.head_file.path).name == "mtp-model.gguf"
    assert chatting.window.speed_panel.head.isHidden()  # it isn't inside the target
    assert chatting.notice() == ""
    assert "in a separate file, mtp-model.gguf" in chatting.window.top_bar.pair.toolTip()
    assert chatting.controller.models.is_loaded(str(heads / "mtp-model.gguf"))
