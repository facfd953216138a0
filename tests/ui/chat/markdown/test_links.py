"""What is shown of a link before it is opened, and what of it is opened."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from app.ui.chat.markdown.inline_writer import confirm_link, host_in_words, link_in_words, safe_url
from app.words import shortened

pytestmark = pytest.mark.qt_log_ignore("^This plugin does not support", extend=True)


@pytest.fixture
def parent(qtbot: QtBot) -> QWidget:
    made = QWidget()
    qtbot.addWidget(made)
    return made


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[QUrl]:
    """What was opened, in a browser or a mail program."""
    urls: list[QUrl] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", urls.append)
    return urls


def ask(parent: QWidget, target: str) -> QMessageBox:
    confirm_link(parent, QUrl(target))
    box = parent.findChild(QMessageBox)
    assert box is not None
    return box


def press(box: QMessageBox, text: str) -> None:
    next(button for button in box.buttons() if button.text() == text).click()


@pytest.mark.parametrize("header", ["attach", "attachment", "Attach", "ATTACHMENT", "x-anything", "from"])
def test_a_mail_link_attaches_nothing(parent: QWidget, opened: list[QUrl], header: str) -> None:
    padding = "%20" * 2000
    target = f"mailto:a@b.example?subject=Hi{padding}&{header}=/home/me/.ssh/id_rsa&CC=c@d.example&body=two%0D%0Alines"
    box = ask(parent, target)
    assert "id_rsa" not in box.text() + box.informativeText()
    press(box, "Open")
    [url] = opened
    assert header.lower() not in url.toString().lower()
    assert "id_rsa" not in url.toString()
    assert url.toString(QUrl.ComponentFormattingOption.FullyEncoded) == (
        f"mailto:a@b.example?subject=Hi{padding}&cc=c@d.example&body=two%0D%0Alines"
    )


def test_everything_that_a_mail_link_fills_in_is_shown(parent: QWidget, opened: list[QUrl]) -> None:
    box = ask(parent, "mailto:a@b.example?bcc=spy@c.example&subject=S&body=one%0Atwo" + "%20" * 500 + "end")
    assert box.text() == "Write an email to a@b.example?"
    lines = box.informativeText().split("\n")
    assert lines[:3] == ["To: a@b.example", "Bcc: spy@c.example", "Subject: S"]
    assert lines[3].startswith("Body: one\\ntwo")
    assert lines[3].endswith("…")
    press(box, "Cancel")
    assert opened == []


def test_a_host_with_letters_that_look_alike_is_shown_both_ways(parent: QWidget) -> None:
    fake = "https://xn--pple-43d.com/login"  # the first letter is Cyrillic
    assert host_in_words(QUrl(fake)) == "xn--pple-43d.com (written аpple.com)"
    assert host_in_words(QUrl("https://аpple.com/login")) == "xn--pple-43d.com (written аpple.com)"
    assert link_in_words(QUrl(fake)) == "https://xn--pple-43d.com/login\nxn--pple-43d.com (written аpple.com)"
    box = ask(parent, fake)
    assert box.text() == "Open xn--pple-43d.com (written аpple.com) in your browser?"


def test_a_plain_link_is_shown_as_it_is_and_what_is_cut_says_so() -> None:
    assert host_in_words(QUrl("https://example.org/a")) == "example.org"
    assert link_in_words(QUrl("https://example.org/a?b=c")) == "https://example.org/a?b=c"
    assert safe_url(QUrl("https://example.org/a?attach=c")) == QUrl("https://example.org/a?attach=c")
    assert link_in_words(QUrl("https://example.org/\u202egpj.exe")).isascii()
    assert shortened("x" * 300, 300) == "x" * 300
    assert shortened("x" * 301, 300) == "x" * 299 + "…"
    assert link_in_words(QUrl("https://example.org/" + "x" * 1000)).endswith("…")
