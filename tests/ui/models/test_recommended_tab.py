"""The list of recommended models is shown again whenever the memory changes, and stays where it was."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication, QPushButton, QScrollArea
from pytestqt.qtbot import QtBot

from app.models.hub.catalog import Catalog
from app.ui.models.recommended_tab import RecommendedTab
from tests.ui.models.windows import Windows, button


@pytest.fixture
def tab(windows: Windows, qtbot: QtBot) -> RecommendedTab:
    window = windows.window
    tab = RecommendedTab(window.hub, windows.library, window.downloads)
    qtbot.addWidget(tab)
    tab.resize(700, 500)
    tab.refresh()
    tab.show()
    qtbot.waitExposed(tab)
    tab.activateWindow()
    qtbot.waitUntil(tab.isActiveWindow)
    return tab


def details(tab: RecommendedTab) -> list[QPushButton]:
    """Its buttons "Other files…", in order."""
    return [one for one in tab.findChildren(QPushButton) if one.text() == "Other files…" and one.isVisible()]


def test_the_list_keeps_its_place_and_the_focus(tab: RecommendedTab, qtbot: QtBot) -> None:
    bar = tab.findChildren(QScrollArea)[0].verticalScrollBar()
    assert bar.maximum() > 1000
    second = details(tab)[1]
    second.setFocus()
    bar.setValue(100)
    tab.refresh()
    qtbot.wait_until(lambda: len(details(tab)) > 1 and details(tab)[1] is not second)
    assert bar.value() == 100
    assert QApplication.focusWidget() is details(tab)[1]


def test_the_list_keeps_its_place_where_the_focused_model_has_gone(
    tab: RecommendedTab, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = tab.findChildren(QScrollArea)[0].verticalScrollBar()
    details(tab)[-1].setFocus()
    bar.setValue(50)
    before, offers = len(details(tab)), Catalog.offers
    with monkeypatch.context() as few:
        few.setattr(Catalog, "offers", lambda catalog, machine: offers(catalog, machine)[:5])
        tab.refresh()
    qtbot.wait_until(lambda: 0 < len(details(tab)) < before)
    assert bar.value() == 50
    search = button(tab, "Search for another model")
    search.setFocus()
    tab.refresh()
    assert search.hasFocus()
