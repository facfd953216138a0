"""A model with an MTP head in the whole window, with a real engine: turned on, remembered, refused, named, tried out,
compared, and left off for once after a crash.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QComboBox
from pytestqt.qtbot import QtBot

from app.chats.settings import ChatSettings
from app.protocol.answering import SamplingChoice
from app.protocol.events import PairLoaded
from app.protocol.options import HeadChoice, LoadSettings
from app.ui.engine.client import EngineClient
from app.ui.engine.pair_names import PairFiles
from app.ui.models.window import ModelsWindow
from tests.support.eagle3_models import make_table_pair
from tests.support.mtp_models import SIZE, make_head_file, make_table_model
from tests.ui.models.windows import texts
from tests.ui.shell.running import WAIT_MS, button
from tests.ui.shell.test_messages import Chatting

GREEDY = SamplingChoice(temperature=0.0)
SMALL = "Models with fewer than 3 billion parameters usually answer faster without it."


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a head inside, the same head in a file of its own, and that of another model; a model whose head
    can't be used, and one that repeats two tokens.
    """
    folder = tmp_path_factory.mktemp("heads")
    make_table_model(folder / "model.gguf", "glm4moe")
    make_table_model(folder / "draft.gguf", "qwen35", name="draft")
    make_table_model(
        folder / "images.gguf",
        "glm4moe",
        edit=lambda writer: writer.add_array("glm4moe.rope.dimension_sections", [8, 12, 12, 0]),
    )
    make_table_model(folder / "repeats.gguf", "glm4moe", follows=dict.fromkeys(range(SIZE), 300) | {300: 301})
    make_head_file(folder / "mtp-model.gguf", "glm4moe")
    make_head_file(folder / "mtp-other.gguf", "qwen35")
    return folder


pytestmark = pytest.mark.usefixtures("guide_pair")


kills_the_engine = pytest.mark.skipif(sys.platform == "win32", reason="signals")


class WithHead(Chatting):
    FIRST_SETTINGS = ChatSettings(sampling=GREEDY, max_tokens=40)

    def load(self, target: Path, draft: Path | None = None, head: HeadChoice = "auto") -> PairLoaded:
        load = LoadSettings(context_length=1024, threads=1)
        files = PairFiles(str(target), str(draft) if draft else None, load, head)
        with self.qtbot.waitSignal(self.ctx.loader.pair_opened, timeout=WAIT_MS):
            self.ctx.loader.load(files, anyway=True)
        return self.pair()

    def pair(self) -> PairLoaded:
        self.ready()
        pair = self.ctx.loader.pair()
        assert pair is not None
        return pair

    def choose_head(self, choice: str) -> PairLoaded:
        """In the Speed panel."""
        box = self.head_box()
        with self.qtbot.waitSignal(self.ctx.loader.pair_opened, timeout=WAIT_MS):
            box.setCurrentIndex(box.findData(choice))
            box.activated.emit(box.currentIndex())
        return self.pair()

    def head_box(self) -> QComboBox:
        box = self.window.speed_panel.head.findChild(QComboBox)
        assert isinstance(box, QComboBox)
        return box

    def notice(self, subject: str = "draft") -> str:
        found = self.ctx.notices.notices().get(subject)
        return found.text if found else ""

    def crash(self) -> None:
        with self.qtbot.waitSignal(self.engine.engine_exited, timeout=WAIT_MS):
            os.kill(self.engine.process_id(), signal.SIGKILL)

    def restart_without_a_draft(self) -> PairLoaded:
        with self.qtbot.waitSignal(self.ctx.loader.pair_opened, timeout=WAIT_MS):
            button(self.window.notice_bar, "Restart without a draft").click()
        return self.pair()

    def library(self, folder: Path) -> ModelsWindow:
        """The window "Models" with these files in its library."""
        models = self.app.windows.models()
        self.settings.values.models_folder = str(folder)
        with self.qtbot.waitSignal(models.service.scanned, timeout=WAIT_MS):
            models.show_library()
        self.qtbot.waitUntil(lambda: bool(models.library.list.rows.shown), timeout=WAIT_MS)
        return models


@pytest.fixture
def chatting(qtbot: QtBot) -> Iterator[WithHead]:
    chatting = WithHead(qtbot)
    chatting.begin()
    yield chatting
    chatting.close()


@pytest.fixture
def crashing(qtbot: QtBot) -> Iterator[WithHead]:
    """With an engine of its own, to be killed."""
    crashing = WithHead(qtbot, EngineClient())
    crashing.begin()
    yield crashing
    crashing.close()


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
    values = chatting.ctx.settings.values
    assert values.model_heads == {str(target): "on"}

    pair = chatting.choose_head("auto")
    assert not pair.has_head and values.model_heads == {}

    pair = chatting.load(target, heads / "draft.gguf")
    assert pair.draft is not None and not pair.has_head
    assert chatting.head_box().accessibleDescription() == "A draft model was chosen instead."
    pair = chatting.choose_head("on")
    assert pair.draft is not None and pair.has_head
    assert "MTP head" in (title := chatting.window.top_bar.pair.text()) and "draft" in title
    tip = chatting.window.top_bar.pair.toolTip()
    assert "Draft: draft" in tip and "MTP head: inside the target" in tip


def test_a_head_in_a_file_of_its_own_is_refused_in_a_notice_or_in_use(chatting: WithHead, heads: Path) -> None:
    head = heads / "mtp-model.gguf"
    pair = chatting.load(heads / "model.gguf", heads / "mtp-other.gguf")
    assert not pair.has_head
    assert chatting.notice().startswith("The MTP head in mtp-other.gguf belongs to another model.")
    pair = chatting.load(heads / "model.gguf", head)
    assert pair.has_head and pair.head_file is not None and Path(pair.head_file.path) == head
    assert chatting.window.speed_panel.head.isHidden()  # it isn't inside the target
    assert chatting.notice() == ""
    assert "in a separate file, mtp-model.gguf" in chatting.window.top_bar.pair.toolTip()
    assert chatting.ctx.loader.is_loaded(str(head))
    page = chatting.library(heads).library.page
    chatting.app.windows.models().library.list.select(str(head))
    page._delete.trigger()
    assert "This model is loaded. Open another model first, then delete this one." in texts(page)
    assert head.is_file()


def test_an_eagle3_head_is_named_where_an_mtp_head_is(chatting: WithHead, tmp_path: Path) -> None:
    target, head = make_table_pair(tmp_path)
    chatting.library(tmp_path)
    pair = chatting.load(target, head)
    assert pair.head_drafter == "eagle3" and pair.draft is None
    assert chatting.window.top_bar.pair.text().endswith("· EAGLE-3 head")
    assert f"EAGLE-3 head: in a separate file, {head.name}" in chatting.window.top_bar.pair.toolTip()
    assert chatting.window.speed_panel.head.isHidden()
    boxes = chatting.window.speed_panel.findChildren(QComboBox)
    offered = [[box.itemText(i) for i in range(box.count())] for box in boxes]
    assert ["Automatic", "EAGLE-3 head", "n-grams"] in offered
    with_head = ChatSettings(sampling=GREEDY, max_tokens=40, drafter="eagle3")
    chatting.settings.values.draft_length = 3
    chatting.model.set_settings(with_head)
    chatting.ask("What does the table say?")
    answer = chatting.model.messages[-1]
    assert answer.settings["head"] == "eagle3" and "mtp_head" not in answer.settings
    assert any("eagle3" in piece for piece in answer.provenance)
    page = chatting.library(tmp_path).library.page
    chatting.app.windows.models().library.list.select(str(head))
    assert any("only this, without the model it belongs to" in text for text in texts(page))


@pytest.mark.allow_logs
@kills_the_engine
def test_a_restart_without_a_draft_leaves_the_head_off_only_once(crashing: WithHead, heads: Path) -> None:
    target, values = heads / "model.gguf", crashing.settings.values
    assert crashing.load(target, head="on").has_head
    crashing.crash()
    pair = crashing.restart_without_a_draft()
    assert not pair.has_head
    assert values.model_heads == {str(target): "on"}
    assert crashing.head_box().currentText() == "Off"
    assert crashing.head_box().accessibleDescription() == (
        "The model was restarted without a draft. The next time you load it, its head is used as before."
    )
    crashing.crash()
    with crashing.qtbot.waitSignal(crashing.ctx.loader.pair_opened, timeout=WAIT_MS):
        button(crashing.window.notice_bar, "Restart").click()
    assert not crashing.pair().has_head  # it may have been the head that crashed
    crashing.actions.run("load_recent", crashing.settings.values.recent_pairs[0])
    crashing.qtbot.waitUntil(lambda: bool((found := crashing.ctx.loader.pair()) and found.has_head))
    crashing.ready()


# ------------------------------------------------------------ trials and the library
