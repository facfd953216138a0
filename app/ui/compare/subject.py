"""What the tab "One answer" is about, and whether it may be sent to a second server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtWidgets import QWidget

from app.chats.model import StoredMessage, title_for
from app.protocol.remote import RemoteModel
from app.ui.chat.host_consent import HostConsent
from app.ui.compare import wording
from app.ui.compare.repeated_answer import RepeatedAnswer
from app.ui.compare.runner import End
from app.ui.engine.pair_names import host_of
from app.ui.widgets.questions import ask


@dataclass(frozen=True)
class Subject:
    """An answer in a chat, or a prompt of a set (``chat_id`` is ``None``)."""

    chat_id: str | None
    read: Callable[[], RepeatedAnswer | None]
    """How the answer is requested from the pair that is loaded now."""
    is_private: bool = False
    """Whether it belongs to a temporary chat, and is deleted with it."""
    branch: Sequence[StoredMessage] = ()
    """What of the chat would be sent."""


def ask_permission(
    window: QWidget, consent: HostConsent, subject: Subject, remote: RemoteModel, start: Callable[[], object]
) -> End | None:
    """``None`` if an answer may go to this server. Otherwise the user is asked, and ``start`` called if it may."""
    chat_id = subject.chat_id
    if chat_id is None or not consent.is_needed(chat_id, subject.branch, remote):
        return None

    def allowed() -> None:
        consent.allow(chat_id, remote)
        start()

    host = host_of(remote.server.address)
    text = wording.ASK_PERMISSION.format(title=title_for(subject.branch[0]), host=host)
    ask(window, "Compare on two servers", text, safe={"Send": allowed})
    return End("stopped", wording.PERMISSION.format(host=host))
