"""What of a stored answer reaches the page."""

from __future__ import annotations

import msgspec

from app.chats.model import StoredMessage
from app.engine.protocol import DrafterFigures, DraftFigures, Figures
from app.ui.page import ChatPage
from tests.ui.parts import Page


def test_the_counts_of_two_drafters_come_with_the_footer() -> None:
    figures = Figures(
        draft=DraftFigures(
            drafters=[
                DrafterFigures(name="model", tested=8, accepted=6, acceptance_rate=0.75, verify_passes=2),
                DrafterFigures(name="ngram", tested=4, accepted=1, acceptance_rate=0.25, verify_passes=1),
            ]
        )
    )
    answer = StoredMessage(
        "id", "chat", None, "assistant", "text", "complete", 0.0, figures=msgspec.to_builtins(figures)
    )
    view = Page()
    page = ChatPage(view)
    page.show("chat", [answer], None)
    page.finish_answer(answer)
    assert len(view.details) == 2
    for details in view.details:
        assert [line.partition(":")[0] for line in details.splitlines()] == ["Draft model", "n-grams"]
