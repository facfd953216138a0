"""Compare on two real llama-servers: one with the guide and its draft, one with the guide alone.

Skipped where there is none: ``LLAMA_SERVER`` names it, or it is on the PATH.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app.protocol.events import Figures
from app.protocol.options import Sampling
from app.settings import Pair
from app.ui.chat.conversation import AnswerSettings
from app.ui.compare.presenter import ComparePresenter
from app.ui.engine.interface import EngineState
from tests.benchmarks.remote_llama_server import DRAFTING, GUIDE, serving
from tests.ui.compare.comparing import Comparing
from tests.ui.compare.test_two_servers import ServerRig
from tests.ui.parts import WAIT_MS

PROGRAM = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
pytestmark = [
    pytest.mark.usefixtures("dressed"),
    pytest.mark.skipif(PROGRAM is None, reason="there is no llama-server; LLAMA_SERVER can name one"),
]
_MODEL = ["-m", str(GUIDE[0]), "-c", "2048"]


@pytest.fixture
def comparing(qtbot: QtBot, tmp_path: Path) -> Iterator[Comparing]:
    """A chat with the server that drafts; the other one is chosen."""
    program = Path(PROGRAM or "")
    with (
        serving(program, [*_MODEL, *DRAFTING["draft model"]]) as (_, drafting),
        serving(program, _MODEL) as (plain_process, plain),
    ):
        at = Comparing(ServerRig(qtbot, tmp_path, "sound"))
        at.chat.connect(drafting)
        at.values.remember_plain_server(drafting, Pair("", server=plain))
        at.plain_process = plain_process
        yield at
        if isValid(at.presenter):
            at.presenter.close()
        at.close()
        at.chat.close()


def result(presenter: ComparePresenter) -> tuple[Figures, Figures]:
    """The figures of both runs."""
    assert presenter._result is not None
    comparison = presenter._result[0].comparison
    return comparison.plain.figures, comparison.drafted.figures


def test_an_answer_and_a_set(comparing: Comparing, tmp_path: Path) -> None:
    at = comparing
    at.chat.settings = AnswerSettings(sampling=Sampling(temperature=0.0), seed=7, max_tokens=48)
    at.chat.ask("What is a verify pass?")
    at.presenter.compare_answer(at.last_answer())
    at.idle()
    plain, drafted = result(at.presenter)
    assert at.verdict().startswith(("✓ Same text", "Different starting at"))  # rounding may decide
    assert plain.draft.drafted == 0
    assert drafted.draft.drafted >= drafted.draft.accepted > 0
    assert plain.decode_tokens_per_second and drafted.decode_tokens_per_second
    path = tmp_path / "mine.txt"
    path.write_text("What is a draft model?\nWhat is a token?\n", encoding="utf-8")
    many = at.window.many
    at.presenter.compare_prompts()
    many.choice.open_file(path)
    many.footer.run_button.click()
    at.idle()
    assert len(many.results) == 2
    assert all(one.plain.figures.draft.drafted == 0 for one in many.comparisons())
    assert all(one.drafted.figures.draft.accepted > 0 for one in many.comparisons())
    assert "Without a draft: llama-server" in many.verdict.text()


def test_one_that_is_killed_in_the_middle(comparing: Comparing) -> None:
    at = comparing
    at.chat.settings = AnswerSettings(
        sampling=Sampling(temperature=5.0, top_k=0, top_p=1.0, min_p=0.0), max_tokens=1000
    )
    at.chat.ask("Tell me a story")
    at.presenter.compare_answer(at.last_answer())
    at.qtbot.waitUntil(lambda: at.presenter.second.engine.state() is EngineState.COMPARING, timeout=WAIT_MS)
    assert at.plain_process is not None
    at.plain_process.kill()
    at.plain_process.wait()
    at.idle()
    assert at.verdict().startswith("The server without a draft failed. ")
    at.window.one.footer.run_button.click()
    at.idle()
    assert at.verdict().startswith("The server without a draft can't be used. Nothing answers at 127.0.0.1")
