"""What an empty chat says about a model that came with the app, and the better one it proposes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from app import system, words
from app.models.downloads.item import FILE_NAME, has_work
from app.models.starter import is_starter, starter_file
from app.protocol.events import PairLoaded
from app.ui import notices
from app.ui.chat.live_answer import LiveAnswer
from app.ui.chat.transcript import Introduction, Transcript, introduction
from app.ui.context import AppContext
from app.ui.engine.pair_names import is_guide
from app.ui.widgets.tasks import Lane

if TYPE_CHECKING:
    from app.models.hub.catalog import Offer


class Proposals(QObject):
    """One for a main window. ``offer``: the proposed model."""

    def __init__(self, ctx: AppContext, transcript: Transcript, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._ctx = ctx
        self._transcript = transcript
        self._values = ctx.settings.values
        self._has_offered = False
        self.offer: Offer | None = None
        self.lane = Lane(self, "proposals")
        ctx.loader.pair_changed.connect(self._on_pair_changed)
        ctx.settings.changed.connect(self._introduce)
        ctx.chats.answers.begun.connect(self._on_answer_begun)
        ctx.closing.callback(self.lane.close)

    def propose(self) -> None:
        """Suggest a model to download while the guide or the starter model introduces itself."""
        if self._introduction().has_card:
            self.lane.submit(self._best_offer, self._show_proposal)

    def hide_introduction(self) -> None:
        """The user wants to keep the model."""
        if self._introduction().model == "guide":
            self._values.guide_introduced = True
        else:
            self._values.starter_introduced = True
        self._introduce()
        self._ctx.settings.save_soon()

    def _introduction(self) -> Introduction:
        return introduction(self._values, self._ctx.loader.files())

    @Slot()
    def _introduce(self) -> None:
        self._transcript.introduce(self._introduction())

    @Slot(object)
    def _on_pair_changed(self, pair: PairLoaded | None) -> None:
        self._introduce()
        self._ctx.notices.remove("better")
        if pair is None or pair.remote is not None or is_guide(pair.target.path):
            return
        if is_starter(pair.target.path):
            self.propose()
        else:
            self._transcript.introduce(proposal="")

    @Slot(object)
    def _on_answer_begun(self, live: LiveAnswer) -> None:
        live.ended.connect(lambda _: self._offer_better() if live.message and live.message.version > 1 else None)

    def _offer_better(self) -> None:
        """When an answer of the starter model is regenerated, suggest a better model, once."""
        if self._introduction().model == "starter model" and not self._has_offered:
            self._has_offered = True
            self.lane.submit(self._best_offer, self._show_better)

    def _best_offer(self) -> Offer | None:
        """The best model for this machine, unless it (or one larger than the starter model in use) is already here."""
        from app.models.hub.catalog import load_catalog
        from app.models.library.library import open_library
        from app.models.origins import origins_file

        if self._introduction().model == "starter model" and (starter := starter_file()) is not None:
            library = open_library(self._values.models_folder, self._values.extra_folders)
            found, size = library.scan(self.lane.is_closed), starter.stat().st_size
            has_larger = any(entry.usable and entry.size > size for entry in found)
            if has_larger or self._values.offline or has_work(system.data_dir() / FILE_NAME):
                return None
        offer = load_catalog().propose(self._ctx.loader.planner.memory.machine())
        known = {origin.repository for origin in origins_file(system.data_dir()).all().values()}
        return offer if offer is not None and offer.file.repository not in known else None

    def _show_proposal(self, offer: Offer | None) -> None:
        if offer is not None and self._introduction().has_card:
            self.offer = offer
            self._transcript.introduce(proposal=_words(offer))

    def _show_better(self, offer: Offer | None) -> None:
        if offer is not None and self._introduction().model == "starter model":
            self.offer = offer
            self._ctx.notices.show("better", notices.better_model(_words(offer)))


def _words(offer: Offer) -> str:
    return f"{offer.model.title} ({words.size(offer.size)} to download)"
