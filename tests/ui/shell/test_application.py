"""The app as a process: start, second start, ends of every kind. Nearly all are real processes, offscreen."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chats.store import ChatStore
from app.ui.shell.application import EndSignals, input_methods, use_input_method
from tests.support.gguf_files import make_model
from tests.support.matrix import in_proof

ROOT = Path(__file__).resolve().parents[3]
WAIT_S = 60
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc, and a missing display")

_NAMES = ["SIGINT", "SIGTERM", *(["SIGHUP"] if sys.platform != "win32" else [])]
QT_CODE = """
from PySide6.QtCore import QCoreApplication, QUrl
from PySide6.QtGui import QFileOpenEvent
from app.ui.shell.application import Application
application = Application([])
application.file_requested.connect(print)
for file in ("/Модель.gguf", QUrl("file:///Модель%202.gguf"), QUrl("https://host/x.gguf")):
    QCoreApplication.sendEvent(application, QFileOpenEvent(file))
print(application.desktopFileName())
"""

Start = Callable[..., "App"]


class App:
    """One running app; its log tells what it does."""

    def __init__(self, home: Path, *arguments: str, **environment: str) -> None:
        self.log_file = home / "logs" / "slipstream.log"
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "app", *arguments],
            cwd=ROOT,
            env={**os.environ, "QT_QPA_PLATFORM": "offscreen", "SLIPSTREAM_HOME": str(home), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8") if self.log_file.exists() else ""

    def wait_for(self, qtbot: QtBot, line: str) -> None:
        """Wait until the log has this."""

        def there() -> bool:
            assert self.process.poll() is None, self.process.communicate()
            return line in self.log()

        qtbot.waitUntil(there, timeout=WAIT_S * 1000)

    def children(self) -> list[int]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii")
        return [int(number) for number in listed.split()]

    def ended(self) -> tuple[int, str]:
        """Exit status and stderr, which says where a crash was."""
        _, errors = self.process.communicate(timeout=WAIT_S)
        crash = self.log_file.with_name("slipstream-crash.txt")
        return self.process.returncode, errors + (crash.read_text(encoding="utf-8") if crash.exists() else "")


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    started: list[App] = []

    def start_it(*arguments: str, **environment: str) -> App:
        started.append(App(home, *arguments, **environment))
        return started[-1]

    yield start_it
    for app in started:
        if app.process.poll() is None:
            app.process.kill()
        app.process.communicate()


def is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@linux
@pytest.mark.usefixtures("guide_pair")
@pytest.mark.parametrize("number", [signal.SIGTERM, *in_proof([signal.SIGINT, signal.SIGHUP])])
def test_signal_ends_the_app_in_order(qtbot: QtBot, start: Start, number: signal.Signals) -> None:
    app = start()
    app.wait_for(qtbot, "pair loaded")
    engine = app.children()
    app.process.send_signal(number)
    status, errors = app.ended()
    assert status == 0, errors
    assert not any(is_alive(child) for child in engine)
    assert not app.log_file.with_name("slipstream-crash.txt").exists()


@linux
@pytest.mark.usefixtures("guide_pair")
def test_a_killed_window_takes_its_engine_along_and_is_in_no_later_start_s_way(qtbot: QtBot, start: Start) -> None:
    first = start()
    first.wait_for(qtbot, "pair loaded")
    engine = first.children()
    assert engine
    first.process.kill()
    first.ended()
    qtbot.waitUntil(lambda: not any(is_alive(child) for child in engine), timeout=WAIT_S * 1000)
    first.log_file.unlink()
    second = start()
    second.wait_for(qtbot, "window painted")
    second.process.send_signal(signal.SIGTERM)
    assert second.ended()[0] == 0


@posix
def test_chat_survives_a_kill_in_the_middle_of_an_answer(home: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.ui.app_that_answers"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "stored\n"
    process.kill()
    process.communicate()
    with ChatStore(home / "chats.sqlite") as store:
        (chat,) = store.chats()
        assert store.branch(chat.id)[-1].status == "streaming"
        store.mark_interrupted()
        question, answer = store.branch(chat.id)
    assert (question.text, question.status) == ("Do not lose me", "complete")
    assert (answer.text, answer.status) == ("Hello there", "interrupted")


@posix
def test_second_start_raises_the_first_or_hands_its_file_over(qtbot: QtBot, start: Start, tmp_path: Path) -> None:
    (tmp_path / "модели").mkdir()
    model = make_model(tmp_path / "модели" / "Модель 1.gguf")
    first = start(LC_ALL="C")
    first.wait_for(qtbot, "window painted")
    assert start().ended() == (0, "")
    first.wait_for(qtbot, "a second start asks for the window")
    for argument, language in ((str(model), "C"), (model.as_uri(), "C.UTF-8")):
        assert start(argument, LC_ALL=language).ended()[0] == 0
    qtbot.waitUntil(lambda: first.log().count("asks for a model file to be opened") == 2, timeout=WAIT_S * 1000)
    status, errors = start("--window", str(tmp_path / "gone.gguf")).ended()
    assert status == 1
    assert "gone.gguf no longer exists" in errors and errors.count("\n") == 1
    first.process.send_signal(signal.SIGTERM)
    assert first.ended()[0] == 0


@pytest.mark.usefixtures("guide_pair")
def test_window_closes_itself_when_its_engine_is_ready(start: Start) -> None:
    app = start("--window", "--close-when-ready")
    shown, errors = app.process.communicate(timeout=WAIT_S)
    assert (app.process.returncode, shown, errors) == (0, "offscreen\n", "")
    assert "pair loaded" in app.log()


def test_window_that_closes_itself_says_what_is_wrong(home: Path, start: Start) -> None:
    home.mkdir(parents=True)
    (home / "chats.sqlite").mkdir()
    status, errors = start("--window", "--close-when-ready").ended()
    assert status == 1
    assert "will be lost when you close Slipstream" in errors


@linux
def test_without_a_display_one_sentence_names_the_command_line(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    status, errors = start(QT_QPA_PLATFORM="").ended()
    assert status == 1
    assert "slipstream generate" in errors
    assert errors.count("\n") == 1


@posix
def test_files_nobody_can_read_do_not_keep_the_window_shut(qtbot: QtBot, home: Path, start: Start) -> None:
    home.mkdir(parents=True)
    (home / "settings.json").write_text("{ not json", encoding="utf-8")
    (home / "chats.sqlite").write_bytes(b"not a database at all" * 500)
    app = start()
    app.wait_for(qtbot, "window painted")
    app.wait_for(qtbot, "chat file open")
    app.process.send_signal(signal.SIGTERM)
    assert app.ended()[0] == 0
    with sqlite3.connect(home / "chats.sqlite") as connection:
        assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
    connection.close()


@posix
def test_home_that_cannot_be_used_is_said_in_a_sentence(home: Path, start: Start) -> None:
    home.write_text("a file where the folder should be", encoding="utf-8")
    status, errors = start().ended()
    assert status == 1
    assert "SLIPSTREAM_HOME" in errors
    assert "Traceback" not in errors


@posix
@pytest.mark.parametrize("name", ["cache", "logs"])
def test_a_folder_that_cannot_be_made_does_not_keep_the_window_shut(home: Path, start: Start, name: str) -> None:
    home.mkdir(parents=True)
    (home / name).write_text("a file where the folder should be", encoding="utf-8")
    app = start("--window", "--close-when-ready")
    status, errors = app.ended()
    assert "Traceback" not in errors
    assert (status == 0) == (name == "cache")  # a log that cannot be written is told
    assert "can't store its files" in errors or name == "cache"


PAINTED_CODE = """
import sys
from app.settings import Settings
from app.ui.shell.all_actions import all_actions
from app.ui.shell.application import Application
from app.ui.shell.main_window import MainWindow

application = Application([])
window = MainWindow(Settings(), all_actions())
window.first_painted.connect(application.quit)
window.show()
application.exec()
print(*sys.modules, sep="\\n")
"""


def test_the_first_picture_does_without_what_it_does_not_show() -> None:
    later = {
        "app.chats.formats.records",
        "app.chats.search",
        "app.chats.store",
        "app.engine.decoding",
        "app.helper.client",
        "app.ui.chat.list.results",
        "app.ui.chat.list.trash",
        "app.markdown.blocks",
        "app.ui.chat.markdown.plain_text",
        "app.ui.chat.markdown.view",
        "app.ui.chat.writer",
        "app.ui.chat.settings_tab",
        "app.ui.app",
        "app.ui.widgets.questions",
        "concurrent.futures",
        "sqlite3",
    }
    command = [sys.executable, "-c", PAINTED_CODE]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    modules = set(result.stdout.split())
    assert all(find_spec(name) for name in later)
    assert "app.ui.chat.transcript" in modules
    assert not later & modules


def test_files_of_the_system_are_passed_on_and_the_desktop_knows_the_app() -> None:
    command = [sys.executable, "-X", "utf8", "-c", QT_CODE]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True)
    assert result.stdout.splitlines() == [
        "/Модель.gguf",
        "/Модель 2.gguf",
        "https://host/x.gguf",
        "app.slipstream.Slipstream",
    ]


@pytest.mark.parametrize("name", _NAMES)
def test_the_end_begins_in_the_event_loop_and_not_in_the_middle_of_what_runs(qtbot: QtBot, name: str) -> None:
    number = signal.Signals[name]
    before = signal.getsignal(number)
    signals = EndSignals()
    asked: list[bool] = []
    signals.end_requested.connect(lambda: asked.append(True))
    try:
        with qtbot.waitSignal(signals.end_requested, timeout=20_000):
            signal.raise_signal(number)
            assert not asked
        assert asked == [True]
    finally:
        signals.close()
    assert signal.getsignal(number) is before


@posix
def test_who_started_it_with_nohup_may_close_the_terminal(qtbot: QtBot) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals = EndSignals()
    try:
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signals.close()
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("before", "installed", "after"),
    [
        ({"QT_IM_MODULE": "fcitx"}, ["compose", "ibus"], {"QT_IM_MODULE": "ibus"}),
        ({"QT_IM_MODULE": "fcitx5"}, ["compose", "ibus"], {"QT_IM_MODULE": "ibus"}),
        ({"QT_IM_MODULES": "wayland;fcitx"}, ["compose", "ibus"], {"QT_IM_MODULES": "wayland;ibus"}),
        ({"QT_IM_MODULES": "wayland;fcitx;ibus"}, ["ibus"], {"QT_IM_MODULES": "wayland;ibus"}),
        ({"QT_IM_MODULE": "fcitx"}, ["ibus", "fcitx5"], {"QT_IM_MODULE": "fcitx"}),
        ({"QT_IM_MODULE": "fcitx"}, ["compose"], {"QT_IM_MODULE": "fcitx"}),
        ({"QT_IM_MODULE": "ibus"}, ["ibus"], {"QT_IM_MODULE": "ibus"}),
        ({"XMODIFIERS": "@im=fcitx"}, ["ibus"], {"XMODIFIERS": "@im=fcitx"}),
        ({}, ["ibus"], {}),
    ],
)  # fmt: skip
def test_fcitx_is_reached_by_the_plugin_that_is_there(
    before: dict[str, str], installed: list[str], after: dict[str, str]
) -> None:
    environment = dict(before)
    use_input_method(environment, installed)
    assert environment == after


@linux
def test_the_plugins_for_input_methods_are_found(tmp_path: Path) -> None:
    assert {"compose", "ibus"} <= input_methods({})
    folder = tmp_path / "platforminputcontexts"
    folder.mkdir()
    (folder / "libfcitx5platforminputcontextplugin.so").touch()
    assert "fcitx5" in input_methods({"QT_PLUGIN_PATH": f"/missing{os.pathsep}{tmp_path}"})


ENDING_CODE = """
import atexit, sys, threading
qt_is_gone, is_done = threading.Event(), threading.Event()
atexit.register(lambda: (qt_is_gone.set(), is_done.wait()))  # called after PySide's, which was registered later
from PySide6.QtWidgets import QWidget
from app.ui.shell import application
from app.ui.widgets.tasks import Lane

class Application(application.Application):
    def __init__(self, arguments):
        super().__init__(arguments)
        self.forgotten = QWidget()
        self.forgotten.show()
        Lane(self, "late").submit(qt_is_gone.wait).add_done_callback(lambda _: is_done.set())

application.Application = Application
sys.exit(application.run(["--close-when-ready"]))
"""


@pytest.mark.usefixtures("guide_pair")
def test_the_app_ends_with_its_window_in_spite_of_another_window_and_a_task_that_runs(home: Path) -> None:
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "SLIPSTREAM_HOME": str(home)}
    command = [sys.executable, "-c", ENDING_CODE]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
