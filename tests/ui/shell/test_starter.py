"""The starter model in the window: from the card of the first start, hidden and brought back, and what is better."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtWidgets import QPushButton

from app import system
from app.models import starter
from app.models.hub.catalog import Catalog
from app.settings import Pair, SettingsFile
from app.ui.chat.transcript import EXAMPLES, STARTER_EXAMPLES
from tests.support.library_parts import small_model
from tests.ui.models.windows import MACHINE
from tests.ui.shell.running import WAIT_MS, Running, button

pytestmark = pytest.mark.usefixtures("guide_pair", "user")
OpenWindow = Callable[[], Running]
USE, KEEP = "Use the starter model", "Keep the starter model"


@pytest.fixture(autouse=True)
def _an_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a better model for every machine."""
    monkeypatch.setattr(Catalog, "propose", lambda catalog, _machine: catalog.offers(MACHINE)[0])


def shown(running: Running) -> list[str]:
    """What the buttons of the chat say."""
    return [one.text() for one in running.window.transcript.findChildren(QPushButton) if one.isVisible()]


def has_loaded(running: Running, path: Path) -> None:
    def loaded() -> bool:
        pair = running.ctx.loader.pair()
        return pair is not None and Path(pair.target.path) == path

    running.qtbot.waitUntil(loaded, timeout=WAIT_MS)
    running.ready()


def use_it(running: Running, starter_model: Path) -> None:
    running.qtbot.waitUntil(lambda: USE in shown(running), timeout=WAIT_MS)
    button(running.window.transcript, USE).click()
    has_loaded(running, starter_model)


def regenerate(running: Running) -> None:
    """Write the last answer again, and wait for what is proposed then."""
    running.choose("regenerate")
    running.done()
    running.qtbot.waitUntil(running.app.proposals.lane.is_idle, timeout=WAIT_MS)


def test_from_the_card_to_an_answer_and_the_next_start(open_window: OpenWindow, starter_model: Path) -> None:
    running = open_window()
    use_it(running, starter_model)
    running.qtbot.waitUntil(lambda: {*STARTER_EXAMPLES, KEEP} <= set(shown(running)), timeout=WAIT_MS)
    assert not {*EXAMPLES, USE} & set(shown(running))
    running.qtbot.waitUntil(lambda: "Get this model" in shown(running), timeout=WAIT_MS)
    button(running.window.transcript, KEEP).click()
    running.qtbot.waitUntil(lambda: KEEP not in shown(running), timeout=WAIT_MS)
    name, sent = next(iter(STARTER_EXAMPLES.items()))
    button(running.window.transcript, name).click()
    running.qtbot.waitUntil(lambda: len(running.model.messages) == 2, timeout=WAIT_MS)
    running.done()
    question, answer = running.model.messages
    assert question.text == sent and answer.status == "complete"
    running.choose("new_chat")
    running.window.close()
    again = open_window()
    has_loaded(again, starter_model)
    assert set(STARTER_EXAMPLES) <= set(shown(again)) and KEEP not in shown(again)
    assert again.settings.values.recent_pairs == [Pair(str(starter_model))]


def test_hidden_until_it_is_chosen_in_the_menu(open_window: OpenWindow, starter_model: Path) -> None:
    running = open_window()
    running.qtbot.waitUntil(lambda: USE in shown(running), timeout=WAIT_MS)
    running.app.opening.hide_starter()
    running.qtbot.waitUntil(lambda: "Keep the guide" in shown(running) and USE not in shown(running), timeout=WAIT_MS)
    running.window.close()
    assert SettingsFile(system.settings_file()).values.starter_hidden
    again = open_window()
    again.ready()
    assert "Keep the guide" in shown(again) and USE not in shown(again)
    library = again.app.windows.models().service
    with again.qtbot.waitSignal(library.scanned, timeout=WAIT_MS):
        library.scan()
    assert library.entries() == []
    with again.qtbot.waitSignal(library.scanned, timeout=WAIT_MS):
        again.choose("load_starter")
    has_loaded(again, starter_model)
    assert [entry.path for entry in library.entries()] == [starter_model]
    again.choose("load_guide")
    again.qtbot.waitUntil(lambda: USE in shown(again), timeout=WAIT_MS)


def test_it_is_still_in_use_where_an_appimage_has_it_somewhere_else(
    open_window: OpenWindow, starter_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = open_window()
    use_it(running, starter_model)
    running.window.close()
    now = tmp_path / "mounted" / "starter" / starter_model.name
    now.parent.parent.mkdir()
    starter_model.parent.rename(now.parent)
    monkeypatch.setattr(starter, "_places", lambda: [now])
    again = open_window()
    has_loaded(again, now)
    assert again.settings.values.recent_pairs == [Pair(str(now))] and again.settings.values.last_pair == Pair(str(now))


def test_it_is_known_through_a_link(starter_model: Path, tmp_path: Path) -> None:
    (link := tmp_path / "linked").symlink_to(starter_model.parent)
    assert starter.is_starter(link / starter_model.name) and not starter.is_starter("no\0name")


def test_a_better_model_is_offered_once_when_an_answer_is_written_again(
    starter_model: Path, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[object] = []
    monkeypatch.setattr(running.app.windows, "_with_models", wanted.append)
    running.ready()
    running.ask("Hello")
    regenerate(running)  # the guide's
    use_it_again = running.actions.qaction("load_starter")
    use_it_again.trigger()
    has_loaded(running, starter_model)
    notices = running.ctx.notices
    assert "better" not in notices.notices()
    regenerate(running)
    notice = notices.notices()["better"]
    assert "small and often wrong" in notice.text and "to download" in notice.text
    running.actions.run("get_proposed")
    assert len(wanted) == 1 and "better" not in notices.notices()
    regenerate(running)
    assert "better" not in notices.notices()


@pytest.mark.parametrize("reason", ["library", "offline"])
def test_nothing_better_is_offered(starter_model: Path, running: Running, reason: str) -> None:
    if reason == "library":
        small_model(system.models_dir() / "larger.gguf", feed_forward=4096)
    else:
        running.settings.values.offline = True
    running.choose("load_starter")
    has_loaded(running, starter_model)
    running.ask("Hello")
    regenerate(running)
    assert "better" not in running.ctx.notices.notices()
    assert "Get this model" not in shown(running)
