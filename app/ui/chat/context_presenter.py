"""Shows what the context meter counts: in the top bar, beside the typed text, and as a notice before it overflows."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Slot

from app.ui import notices
from app.ui.chat.composer import Composer
from app.ui.chat.context_meter import ContextMeter, ContextUse
from app.ui.chat.model import ChatModel
from app.ui.notices import NoticeList

SUBJECT = "context"
_Told = tuple[str, str | None, bool]
"""Of which chat, where its context would begin, and whether the message would fit at all."""


class ContextPresenter(QObject):
    """One for a window."""

    def __init__(
        self,
        meter: ContextMeter,
        show_gauge: Callable[[ContextUse | None], object],
        composer: Composer,
        notice_list: NoticeList,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._meter = meter
        self._show_gauge = show_gauge
        self._composer = composer
        self._notice_list = notice_list
        self._told: _Told | None = None
        """What the notice is about that is there, unless the user dismissed it."""
        meter.changed.connect(self._refresh)

    @Slot()
    def _refresh(self) -> None:
        use, model = self._meter.use, self._meter.model
        self._show_gauge(use)
        self._composer.show_tokens(use.text if use is not None else 0)
        if use is None or not self._is_news(use, model):
            self._told = None
            self._notice_list.remove(SUBJECT)
            return
        told = model.id, use.starts_at, use.fits()
        if told != self._told or SUBJECT in self._notice_list.notices():
            self._told = told
            is_too_long = use.attached > 0 and not use.fits()
            long = notices.too_long(use.warning(), can_raise=self._meter.can_raise())
            self._notice_list.show(SUBJECT, long if is_too_long else notices.told(use.warning()))

    def _is_news(self, use: ContextUse, model: ChatModel) -> bool:
        """Whether there is something to say that was not so with the last answer."""
        if not use.warning() or model.state.is_busy:
            return False
        last = next((one for one in reversed(model.messages) if one.role == "assistant"), None)
        was_so = last is not None and last.figures.get("context_start") == use.starts_at
        return not (use.dropped and was_so and use.fits())
