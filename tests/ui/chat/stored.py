"""Stored messages, a transcript that shows them, and what is done to it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.chats.model import StoredMessage, pack, to_json
from app.protocol.events import DraftFigures, Figures, Piece
from app.ui.chat.answer import AnswerMessage
from app.ui.chat.footer import footer_of
from app.ui.chat.messages import UserMessage
from app.ui.chat.transcript import Transcript
from app.ui.widgets.turns import turns
from tests.ui.recorded_actions import Recorded

FIGURES = Figures(
    completion_tokens=214,
    decode_tokens_per_second=74.0,
    time_to_first_token_seconds=0.12,
    draft=DraftFigures(tested=100, accepted=68, acceptance_rate=0.68),
)


def question(message_id: str, text: str, version: int = 1, versions: int = 1) -> StoredMessage:
    return StoredMessage(message_id, "chat", None, "user", text, "complete", 0.0, version=version, versions=versions)


def answer(
    message_id: str,
    text: str = "",
    version: int = 1,
    versions: int = 1,
    *,
    pieces: Sequence[Piece] = (),
    figures: Figures = FIGURES,
    note: str = "",
    author: str = "Guide",
) -> StoredMessage:
    kept = msgspec.to_builtins(figures) | ({"failure": note} if note else {})
    return StoredMessage(
        message_id,
        "chat",
        None,
        "assistant",
        text,
        "complete",
        0.0,
        pair=author,
        figures_json=to_json(kept),
        provenance_json=to_json(pack(pieces)),
        version=version,
        versions=versions,
    )


FOOTER = footer_of(answer("a"))


def settle(qtbot: QtBot, transcript: Transcript) -> None:
    """Wait until everything near the screen is built and drawn."""

    def is_settled() -> bool:
        built = [entry.widget for entry in transcript.column.built()]
        views = [widget.view for widget in built if isinstance(widget, (UserMessage, AnswerMessage))]
        return transcript.column.is_complete() and turns().is_idle() and all(view.is_drawn for view in views)

    qtbot.waitUntil(is_settled)


def show(qtbot: QtBot, transcript: Transcript, *messages: StoredMessage) -> None:
    """Add these messages, and wait until they are drawn."""
    for message in messages:
        transcript.add_all([message])
    settle(qtbot, transcript)


def click(button: QAbstractButton) -> None:
    assert button.isVisible()
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def actions_of(transcript: Transcript) -> Recorded:
    assert isinstance(transcript._actions, Recorded)
    return transcript._actions


def calls(transcript: Transcript, action: str) -> list[tuple[object, ...]]:
    """What this action is carried out with, now and later."""
    return actions_of(transcript).calls[action]


def named(parent: QWidget, name: str) -> QAbstractButton:
    return next(button for button in parent.findChildren(QAbstractButton) if button.accessibleName() == name)


def keys(transcript: Transcript) -> list[str]:
    return [entry.key for entry in transcript.column.entries]


def has_button(transcript: Transcript, text: str) -> bool:
    return any(button.text() == text for button in transcript.findChildren(QPushButton))
