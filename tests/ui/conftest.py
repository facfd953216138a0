"""What the tests of the window share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QApplication, QDialog, QMainWindow
from pytestqt.qtbot import QtBot
from shiboken6 import delete, isValid

from app.models import starter
from app.settings import Settings
from app.ui.settings import general_page
from app.ui.widgets import stylesheet, theme
from app.ui.widgets.garbage import GarbageCollector
from tests.support.hub_server import HubServer
from tests.support.keyrings import MemoryKeyring
from tests.support.library_parts import small_model
from tests.ui.models.windows import Pages, Windows
from tests.ui.shell.warm_engine import WarmEngine

_VARIABLES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("HF_ENDPOINT", "HF_TOKEN", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"),
    "OLLAMA_MODELS",
)


@pytest.fixture(scope="session", autouse=True)
def application(qapp: QApplication) -> Iterator[None]:
    """It is there before the first test, whichever that is, and goes without Python's objects in the clipboard.

    Copying from a text leaves one there. The clipboard of the offscreen platform goes after the interpreter, which
    would end the process with a segmentation fault. Garbage is collected as in the app, and by `tests/conftest.py`.
    """
    GarbageCollector(qapp)
    yield
    qapp.clipboard().clear()


@pytest.fixture(scope="session")
def warm_engine(application: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The windows of `tests.ui.shell.running` have one engine process after the other's tests, not one each.

    It keeps its files in a folder of its own: a test about them needs a `EngineClient` of its own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPSTREAM_HOME", str(tmp_path_factory.mktemp("warm-engine")))
        WarmEngine.begin()
    yield
    WarmEngine.close()


@pytest.fixture(autouse=True)
def _no_windows_of_earlier_tests(qapp: QApplication) -> None:
    """They would be polished again with every style sheet, which took a third of the time of all tests."""
    for widget in qapp.topLevelWidgets():
        if isValid(widget) and widget.parent() is None and isinstance(widget, QMainWindow | QDialog):
            delete(widget)


@pytest.fixture(autouse=True)
def _no_starter(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none, whether or not this checkout has the file."""
    monkeypatch.setattr(starter, "_places", list)


@pytest.fixture
def starter_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model in the starter's place."""
    file = small_model(
        tmp_path / "starter" / f"{starter.STARTER_NAME}.Q4_1.gguf", edit=lambda writer: writer.add_license("apache-2.0")
    )
    monkeypatch.setattr(starter, "_places", lambda: [file])
    return file


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user with no other apps, no proxy and no tokens."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "user"
    folder.mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(folder))
    return folder


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server


@pytest.fixture
def closed_windows(
    qtbot: QtBot, server: HubServer, user: Path, kept: MemoryKeyring, tmp_path: Path
) -> Iterator[Windows]:
    """To be opened by the test, when it has set what it needs."""
    windows = Windows(qtbot, server, tmp_path)
    yield windows
    server.release()
    windows.close()


@pytest.fixture
def windows(closed_windows: Windows) -> Windows:
    return closed_windows.open()


@pytest.fixture
def pages() -> Iterator[Pages]:
    """What is opened in the browser."""
    browser = Pages()
    for scheme in ("http", "https", "file"):
        QDesktopServices.setUrlHandler(scheme, browser, "open")  # type: ignore[arg-type]
    yield browser
    for scheme in ("http", "https", "file"):
        QDesktopServices.unsetUrlHandler(scheme)


@pytest.fixture
def no_style_later(qapp: QApplication) -> Iterator[None]:
    """The application without style rules after the test.

    Not by an empty style sheet: Qt then forgets which widgets have rules, but not their mark that it knows them. It
    never hears that such a widget has gone, and the next style sheet is applied to it.
    """
    yield
    theme.override(None)
    theme.notifier().set_zoom(100)
    qapp.setStyleSheet("/* no rules */")


@pytest.fixture
def usual_settings_later(no_style_later: None) -> Iterator[None]:
    """After the test the whole app is again as the settings have it in the beginning."""
    yield
    general_page.apply(Settings())


@pytest.fixture
def dressed(no_style_later: None, qapp: QApplication) -> None:
    """The application as it looks, in light colors."""
    theme.override(theme.LIGHT)
    stylesheet.apply(qapp)
