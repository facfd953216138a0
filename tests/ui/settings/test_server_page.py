"""Settings → API server: the switch, the address, the key and the last requests, with the real server behind them."""

from __future__ import annotations

import socket
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import httpx2
import keyring
import psutil
import pytest
from keyring.backends import fail
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QCheckBox, QLineEdit, QMessageBox, QPlainTextEdit, QSpinBox, QTabBar

from app.storage.secrets import SERVICE
from app.ui.server.control import KEY_NAME
from app.ui.settings.server_page import ServerPage
from tests.support.keyrings import MemoryKeyring
from tests.support.leftovers import Running, left_since
from tests.ui.models.windows import Windows, button, cell, open_dialog, rows, texts, tree

T = TypeVar("T")


@pytest.fixture
def page(windows: Windows) -> ServerPage:
    """The page, in front; the port is free."""
    windows.values.server = type(windows.values.server)(port=free_port())
    windows.settings.show_page("API server")
    return windows.settings.server


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def check(page: ServerPage, text: str) -> QCheckBox:
    return next(box for box in page.findChildren(QCheckBox) if box.text() == text)


def line(page: ServerPage, name: str) -> QLineEdit:
    return next(one for one in page.findChildren(QLineEdit) if one.accessibleName() == name)


def says(page: ServerPage, beginning: str) -> bool:
    return any(text.startswith(beginning) for text in texts(page))


def switch_on(windows: Windows, page: ServerPage) -> None:
    check(page, "Let other programs use the model").click()
    windows.until(lambda: says(page, "Listening on port"))


def get(windows: Windows, path: str, **headers: str) -> httpx2.Response:
    url = f"http://127.0.0.1:{windows.values.server.port}{path}"
    with ThreadPoolExecutor(1) as pool:
        answer: Future[httpx2.Response] = pool.submit(httpx2.get, url, headers=headers, timeout=60)
        windows.until(answer.done)
    return answer.result()


def test_off_at_first_then_on_and_off(windows: Windows, page: ServerPage, kept: MemoryKeyring) -> None:
    assert says(page, "Off. No other program")
    assert not windows.server_control.serving.process_id()
    assert rows(tree(page, "Last requests"))[0].text(1) == "No requests since Slipstream started"
    switch_on(windows, page)
    assert windows.values.server.on
    address = f"http://127.0.0.1:{windows.values.server.port}/v1"
    assert line(page, "Address").text() == address
    field, key = line(page, "API key"), kept.entries[SERVICE, KEY_NAME]
    assert len(key) >= 40 and field.text() == key
    assert get(windows, "/v1/models").status_code == 401
    assert get(windows, "/v1/models", Authorization=f"Bearer {key}").status_code == 200
    languages, example = page.findChild(QTabBar), page.findChild(QPlainTextEdit)
    assert isinstance(languages, QTabBar) and isinstance(example, QPlainTextEdit)
    for place, name in enumerate(("curl", "Python", "JavaScript")):
        languages.setCurrentIndex(place)
        assert languages.tabText(place) == name
        assert address in example.toPlainText()
        assert "YOUR_KEY" in example.toPlainText() and key not in example.toPlainText()
    assert key not in field.displayText()
    button(page, "Show").click()
    assert field.displayText() == key
    copy = type(button(page, "Copy"))
    next(one for one in page.findChildren(copy) if one.accessibleName() == "Copy the API key").click()
    assert QGuiApplication.clipboard().text() == key
    page.replace_key.click()
    button(open_dialog(QMessageBox), "Replace the key").click()
    windows.until(lambda: field.text() not in (key, ""))
    windows.until(lambda: says(page, "Listening on port"))
    new = kept.entries[SERVICE, KEY_NAME]
    assert field.text() == new
    assert get(windows, "/v1/models", Authorization=f"Bearer {key}").status_code == 401
    assert get(windows, "/v1/models", Authorization=f"Bearer {new}").status_code == 200
    check(page, "Let other programs use the model").click()
    assert says(page, "Off.") and not windows.server_control.serving.process_id()


def test_without_a_keyring_there_is_a_key_for_this_time(windows: Windows, page: ServerPage) -> None:
    keyring.set_keyring(fail.Keyring())  # type: ignore[no-untyped-call]
    switch_on(windows, page)
    assert says(page, "This system has no keyring") and len(line(page, "API key").text()) >= 40


def test_no_key_on_this_computer_only(windows: Windows, page: ServerPage) -> None:
    needs_key, others = (
        check(page, "Programs on this computer need the key, too"),
        check(page, "Other computers may use it"),
    )
    needs_key.click()
    switch_on(windows, page)
    assert not windows.values.server.needs_key
    assert get(windows, "/v1/models").status_code == 200
    others.click()
    port = windows.values.server.port
    windows.until(lambda: says(page, f"Listening on port {port} of all addresses"))
    assert needs_key.isChecked() and not needs_key.isEnabled()
    assert get(windows, "/v1/models").status_code == 401
    others.click()
    assert not needs_key.isChecked() and needs_key.isEnabled()
    assert not windows.values.server.needs_key


def test_a_port_in_use_is_said_and_another_one_taken(windows: Windows, page: ServerPage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        spin = next(iter(page.findChildren(QSpinBox)))
        spin.setValue(other.getsockname()[1])
        check(page, "Let other programs use the model").click()
        windows.until(lambda: says(page, f"Port {other.getsockname()[1]} on 127.0.0.1 is in use by another program."))
    spin.setValue(free_port())
    windows.until(lambda: says(page, "Listening on port"))


def test_more_names_and_pages(windows: Windows, page: ServerPage) -> None:
    for name, text in (
        ("Other names for this computer", "Tower, tower.lan"),
        ("More web pages that may use the server", "https://Notes.example/"),
    ):
        field = line(page, name)
        field.setText(text)
        field.editingFinished.emit()
    assert windows.values.server.hosts == ["Tower", "tower.lan"]
    switch_on(windows, page)
    key = line(page, "API key").text()
    assert get(windows, "/v1/models", Host="tower", Authorization=f"Bearer {key}").status_code == 200
    assert get(windows, "/v1/models", Host="evil.example", Authorization=f"Bearer {key}").status_code == 403
    answer = get(windows, "/v1/models", Origin="https://notes.example", Authorization=f"Bearer {key}")
    assert answer.headers["access-control-allow-origin"] == "https://notes.example"


def test_the_last_requests_are_listed_without_what_was_said(windows: Windows, page: ServerPage) -> None:
    switch_on(windows, page)
    get(windows, "/v1/models?secret=xyzzy", **{"User-Agent": "Zed/1.2 \x7f"})
    get(windows, "/xyzzy", **{"User-Agent": "x" * 500})
    found = tree(page, "Last requests")
    windows.until(lambda: len(rows(found)) == 2)
    cells = [[cell(one, place) for place in range(6)] for one in rows(found)]
    assert "xyzzy" not in str(cells)
    assert [one[2] for one in cells] == ["unknown path", "/v1/models"]
    assert [one[1] for one in cells] == ["x" * 40, "Zed/1.2"]
    assert [one[5] for one in cells] == ["Missing or wrong key", "Missing or wrong key"]


def test_the_app_is_quit_while_it_starts(windows: Windows, page: ServerPage) -> None:
    before = Running.now()
    check(page, "Let other programs use the model").click()
    windows.until(lambda: windows.server_control.serving.process_id() != 0)
    process = psutil.Process(windows.server_control.serving.process_id())
    windows.server_control.close()
    assert not process.is_running() and left_since(before) == []
