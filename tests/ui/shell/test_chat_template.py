"""A model whose chat template is broken, and another template for it, in the whole window with a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chats.settings import ChatSettings
from app.protocol.options import LoadSettings
from app.settings import Pair
from app.ui.engine.pair_names import PairFiles
from app.ui.models import opening
from tests.support.gguf_files import make_model
from tests.ui.shell.running import WAIT_MS
from tests.ui.shell.test_messages import Chatting

pytestmark = pytest.mark.usefixtures("guide_pair")
LOAD = LoadSettings(context_length=512, threads=1)


class WithTemplate(Chatting):
    FIRST_SETTINGS = ChatSettings(max_tokens=4)

    def load(self, files: PairFiles) -> tuple[str, str]:
        """The template in use, and what the window says of it."""
        loader = self.ctx.loader
        with self.qtbot.waitSignal(loader.pair_opened, timeout=WAIT_MS):
            loader.load(files, anyway=True)
        self.ready()
        pair, notice = loader.pair(), self.ctx.notices.notices().get("template")
        assert pair is not None
        return pair.template, notice.text if notice else ""


@pytest.fixture
def chatting(qtbot: QtBot) -> Iterator[WithTemplate]:
    chatting = WithTemplate(qtbot)
    chatting.begin()
    yield chatting
    chatting.close()


def test_a_broken_template_costs_a_notice_and_another_one_is_remembered(chatting: WithTemplate, tmp_path: Path) -> None:
    target = str(make_model(tmp_path / "odd.gguf", chat_template="{{ if .System }}{{ .System }}{{ end }}{{ .Prompt }}"))
    template, notice = chatting.load(PairFiles(target, settings=LOAD))
    assert template == "chatml" and "own chat template is broken" in notice and "ChatML template is used" in notice
    own = tmp_path / "own.jinja"
    own.write_text("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]")
    assert chatting.load(PairFiles(target, settings=LOAD, template=str(own))) == ("file", "")
    values = chatting.settings.values
    assert opening.as_remembered(values, Pair(target)).template == str(own)
    assert opening.as_remembered(values, values.last_pair).template == str(own)
    template, notice = chatting.load(PairFiles(target, settings=LOAD, template=str(tmp_path / "gone.jinja")))
    assert template == "chatml" and "chosen chat template can't be read" in notice
    chatting.load(PairFiles(target, settings=LOAD))
    assert opening.as_remembered(values, Pair(target)).template == ""
