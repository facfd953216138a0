"""The installed app as somebody uses it for the first and the second time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.conftest import GUIDE
from tests.packaged.clean_system import CleanSystem
from tests.packaged.conftest import NewApp
from tests.packaged.display import Display
from tests.packaged.waiting import wait_for
from tests.support.thinking_models import make_thinking_model

QUESTION = "What is speculative decoding?"
DIALOG = "^Open models"
_COLORS_OF_A_WINDOW = 50


def test_a_question_is_answered_and_kept_until_the_next_start(
    installed: CleanSystem, new_app: NewApp, display: Display, artefacts: Path
) -> None:
    app = new_app(installed)
    first = app.open(display)
    first.window()
    first.wait_until_ready()
    answer = first.ask(QUESTION)
    assert len(answer) > 20
    assert display.photograph(artefacts / "first-start.png") > _COLORS_OF_A_WINDOW
    assert first.quit() == 0
    app.wait_until_gone()

    second = app.open(display)
    second.window()
    second.wait_until_ready()
    assert app.questions() == [QUESTION]
    assert app.answers() == [answer]
    assert app.titles() == [QUESTION]
    assert display.photograph(artefacts / "second-start.png") > _COLORS_OF_A_WINDOW
    assert second.terminate() == 0
    app.wait_until_gone()
    assert "WARNING" not in app.log()
    assert "ERROR" not in app.log()
    assert app.said.read_text() == ""


def test_a_model_thinks_with_a_draft(installed: CleanSystem, new_app: NewApp, tmp_path: Path) -> None:
    app = new_app(installed)
    made = make_thinking_model(tmp_path / "thinking.gguf", "qwen3.5")
    for name in ("target.gguf", "draft.gguf"):
        shutil.copyfile(made, installed.path(f"{app.user.home}/{name}"))
    options = ["--target", f"{app.user.home}/target.gguf", "--prompt", "Well?", "--seed", "1", "--thinking", "6"]
    plain, drafted = (
        json.loads(app.run("generate", *options, "--max-tokens", "40", "--json", *draft).stdout)
        for draft in (["--no-draft"], ["--draft", f"{app.user.home}/draft.gguf", "--draft-length", "4"])
    )
    assert plain["thinking"] and plain["text"]
    assert (plain["thinking"], plain["text"]) == (drafted["thinking"], drafted["text"])


def test_a_chat_is_printed(installed: CleanSystem, new_app: NewApp, display: Display, artefacts: Path) -> None:
    """Into a file: the clean system has no printer."""
    app = new_app(installed)
    opened = app.open(display)
    opened.wait_until_ready()
    opened.ask(QUESTION)
    display.press(opened.window(), "ctrl+p")
    dialog = opened.window("^Print")
    assert display.photograph(artefacts / "print.png") > _COLORS_OF_A_WINDOW
    display.press(dialog, "Return")
    home = installed.path(app.user.home)
    wait_for(lambda: any(file.read_bytes().endswith(b"%%EOF\n") for file in home.rglob("*.pdf")), "the printed chat")
    assert opened.quit() == 0


def test_a_second_start_raises_the_window_of_the_first(
    installed: CleanSystem, new_app: NewApp, display: Display
) -> None:
    app = new_app(installed)
    first = app.open(display)
    first.wait_until_ready()
    assert app.run(check=False).returncode == 1  # without a display there is nothing it could do
    app.env["DISPLAY"] = display.name
    assert app.run().returncode == 0
    first.wait_for_log("a second start asks for the window")
    assert len(display.windows("Slipstream")) == 1
    assert first.quit() == 0


def test_a_model_file_is_opened_from_outside(installed: CleanSystem, new_app: NewApp, display: Display) -> None:
    app = new_app(installed)
    model = f"{app.user.home}/Ein Modell.gguf"
    shutil.copyfile(GUIDE / "guide-target.gguf", installed.path(model))
    opened = app.open(display, model)
    opened.wait_until_ready()
    display.press(opened.window(DIALOG), "Return")
    opened.wait_for_log("loading target Ein Modell.gguf")
    opened.wait_until_ready(times=2)
    assert opened.ask(QUESTION)
    assert opened.quit() == 0


def test_the_window_waits_for_no_network(installed: CleanSystem, new_app: NewApp) -> None:
    """Every test here runs without one; this one says so."""
    app = new_app(installed)
    interfaces = installed.run("cat", "/proc/net/dev", user=app.user).stdout.splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
    opened = app.open(None)
    wait_for(lambda: "pair loaded" in app.log(), "the pair to be loaded")
    assert opened.terminate() == 0
