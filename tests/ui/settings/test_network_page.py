"""Settings → Network: every setting takes effect at once, the token goes to the keyring, and the traffic is listed."""

from __future__ import annotations

import keyring
import pytest
from keyring.backends import fail
from PySide6.QtWidgets import QCheckBox, QLineEdit, QSpinBox, QWidget

from app.models.hub.network import SERVICE
from app.ui.settings.network_page import PURPOSES, NetworkPage, TokenDialog
from tests.support.hub_server import HubServer
from tests.support.keyrings import MemoryKeyring
from tests.ui.models.windows import Pages, Windows, button, buttons, cell, open_dialog, rows, texts, tree

HOST, SECRET = "127.0.0.1", "hf_aSecret"


@pytest.fixture
def page(windows: Windows) -> NetworkPage:
    """The page, in front."""
    show(windows)
    return windows.settings.network


def show(windows: Windows) -> None:
    windows.settings.show_page("Network")
    windows.until(
        lambda: any(
            "No token" in text or "token is stored" in text or "token is kept" in text
            for text in texts(windows.settings.network)
        )
    )


def check(page: QWidget, text: str) -> QCheckBox:
    return next(box for box in page.findChildren(QCheckBox) if box.text() == text)


def field(page: QWidget, name: str) -> QSpinBox:
    return next(one for one in page.findChildren(QSpinBox) if one.accessibleName() == name)


def type_address(page: NetworkPage, text: str) -> None:
    line = next(one for one in page.findChildren(QLineEdit) if one.accessibleName().startswith("Address"))
    line.setText(text)
    line.editingFinished.emit()


def test_offline_takes_effect_at_once(windows: Windows, page: NetworkPage) -> None:
    with windows.qtbot.waitSignal(windows.ctx.settings.changed):
        check(page, "Work offline").click()
    assert windows.values.offline
    windows.search("anything")
    windows.until(lambda: any("offline" in text.lower() for text in texts(windows.window.search)))
    assert windows.server.requests == []
    check(page, "Work offline").click()
    windows.search("anything")
    windows.until(lambda: any("No models found" in text for text in texts(windows.window.search)))


def test_another_mirror_is_asked_at_once(windows: Windows, page: NetworkPage) -> None:
    with HubServer() as other:
        other.add("owner/on-the-other", {"x.gguf": b"x"})
        type_address(page, f"  {other.endpoint}/ ")
        windows.search("other")
        windows.until(lambda: windows.results() == ["owner/on-the-other"])
        assert windows.server.requests == []


def test_an_address_that_is_not_safe(windows: Windows, page: NetworkPage, pages: Pages) -> None:
    windows.server.add("owner/name", {"x.gguf": b"x"})
    windows.search("name")
    windows.until(lambda: windows.results() == ["owner/name"])
    windows.show_repository("owner/name")
    type_address(page, "http://mirror.example/<b>")
    sentence = "The hub's address http://mirror.example/<b> isn't safe to use. It must begin with https://."
    assert sentence in texts(page)
    button(windows.page, "Open page").click()
    assert sentence in texts(windows.page)
    assert pages.opened == []
    windows.search("anything")
    windows.until(lambda: sentence in texts(windows.window.search))
    button(page, "Enter token…").click()
    assert sentence in texts(page)
    type_address(page, windows.server.endpoint)
    assert sentence not in texts(page)


def test_a_token_is_kept_in_the_keyring_and_removed(
    windows: Windows, page: NetworkPage, kept: MemoryKeyring, pages: Pages
) -> None:
    assert "No token. Gated repositories need one." in texts(page)
    assert "Remove" not in buttons(page)
    button(page, "Enter token…").click()
    dialog = open_dialog(TokenDialog)
    line = dialog.findChild(QLineEdit)
    assert isinstance(line, QLineEdit)
    assert line.echoMode() is QLineEdit.EchoMode.Password
    assert not button(dialog, "Save").isEnabled()
    button(dialog, "Create a token on the website").click()
    assert pages.opened == [f"{windows.server.endpoint}/settings/tokens"]
    line.setText(f" {SECRET} ")
    button(dialog, "Save").click()
    windows.until(lambda: "A token is stored in the system's keyring." in texts(page))
    assert kept.entries == {(SERVICE, HOST): SECRET}
    assert "Replace…" in buttons(page)
    button(page, "Remove the access token").click()
    windows.until(lambda: "No token. Gated repositories need one." in texts(page))
    assert kept.entries == {}


def test_a_token_that_is_none_is_refused_and_said_so(windows: Windows) -> None:
    windows.window.show_downloads()
    windows.actions.run("ask_for_token")
    dialog = open_dialog(TokenDialog)
    line = dialog.findChild(QLineEdit)
    assert isinstance(line, QLineEdit)
    line.setText("two words")
    button(dialog, "Save").click()
    page = windows.settings.network
    windows.until(lambda: any(text.startswith("This isn't an access token") for text in texts(page)))
    assert windows.settings.isVisible()
    assert "No token. Gated repositories need one." in texts(page)
    assert "Remove" not in buttons(page)


def test_without_a_keyring_it_is_kept_in_memory_and_says_so(windows: Windows, page: NetworkPage) -> None:
    keyring.set_keyring(fail.Keyring())  # type: ignore[no-untyped-call]
    page._set_token(SECRET)
    windows.until(lambda: any("in memory until Slipstream closes" in text for text in texts(page)))


@pytest.mark.usefixtures("page")
def test_the_traffic_is_listed(windows: Windows) -> None:
    traffic = tree(windows.settings, "Network traffic since Slipstream started")
    assert [cell(row, 2) for row in rows(traffic)] == ["No traffic since Slipstream started"]
    windows.search("anything")
    windows.until(lambda: [cell(row, 2) for row in rows(traffic)] == ["search"])
    (row,) = rows(traffic)
    assert cell(row, 1) == HOST
    named = {name.lower() for name, _ in PURPOSES}
    assert {cell(row, 2) for row in rows(traffic)} <= named


def test_what_is_set_is_shown(closed_windows: Windows) -> None:
    values = closed_windows.values
    values.offline, values.token_to_mirror, values.parallel_downloads = True, True, 3
    windows = closed_windows.open()
    with windows.qtbot.assertNotEmitted(windows.ctx.settings.changed):
        show(windows)
    page = windows.settings.network
    assert check(page, "Work offline").isChecked()
    assert check(page, "Also send the access token to this mirror").isChecked()
    assert field(page, "Simultaneous downloads").value() == 3


def test_downloads_at_the_same_time(windows: Windows, page: NetworkPage) -> None:
    field(page, "Simultaneous downloads").setValue(4)
    assert windows.values.parallel_downloads == 4
    queue = windows.window.downloads._queue
    assert queue is not None and queue._parallel == 4
