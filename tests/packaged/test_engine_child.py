"""The engine's process beside the window's: it may die, and it may not outlive."""

from __future__ import annotations

from pathlib import Path

from tests.packaged.clean_system import CleanSystem
from tests.packaged.conftest import NewApp
from tests.packaged.display import Display
from tests.packaged.waiting import wait_for


def test_a_killed_engine_is_told_of_and_comes_back_for_the_next_question(
    installed: CleanSystem, new_app: NewApp, display: Display, artefacts: Path
) -> None:
    app = new_app(installed)
    opened = app.open(display)
    opened.wait_until_ready()
    before = opened.engine()
    before.kill()
    opened.wait_for_log("engine ended: killed")
    display.photograph(artefacts / "engine-killed.png")
    assert opened.ask("What does the target model do?")
    after = opened.engine()
    assert after.pid != before.pid
    assert after.ppid() == opened.main_process().pid
    assert opened.quit() == 0
    app.wait_until_gone()


def test_the_engine_does_without_qt(installed: CleanSystem, new_app: NewApp, display: Display) -> None:
    opened = new_app(installed).open(display)
    opened.wait_until_ready()
    assert [part.path for part in opened.engine().memory_maps() if "Qt6" in part.path] == []
    assert opened.quit() == 0


def test_a_killed_window_takes_the_engine_along(installed: CleanSystem, new_app: NewApp, display: Display) -> None:
    app = new_app(installed)
    opened = app.open(display)
    opened.wait_until_ready()
    assert opened.engine().is_running()
    opened.kill()
    app.wait_until_gone()
    again = app.open(display)
    again.wait_until_ready()
    assert again.quit() == 0


def test_a_window_killed_during_an_answer_takes_the_engine_along(
    installed: CleanSystem, new_app: NewApp, display: Display
) -> None:
    app = new_app(installed)
    opened = app.open(display)
    opened.wait_until_ready()
    display.type(opened.window(), "Tell me all about acceptance.")
    wait_for(app.questions, "the question to be stored")
    opened.kill()
    app.wait_until_gone()
