"""What happens with models during chats: their memory, trials of new pairs, a suggested pair instead of the guide."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from app import paths
from app.models.downloads.queue_file import FILE_NAME, has_work
from app.models.starter import is_starter, starter_file
from app.models.text import size_text
from app.models.trials import Trial
from app.protocol.events import PairLoaded
from app.settings import Settings
from app.ui import notices
from app.ui.chat.open_chats import OpenChats
from app.ui.chat.transcript import Transcript
from app.ui.engine.client import EngineClient
from app.ui.engine.load_planner import NO_MEMORY_FOR_IMAGES
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_files import is_guide
from app.ui.engine.pair_names import Introduction, introduction
from app.ui.engine.queue import EngineQueue
from app.ui.notices import Notice, NoticeList
from app.ui.widgets.tasks import Lane

if TYPE_CHECKING:
    from app.models.hub.catalog import CatalogModel, Offer
    from app.ui.compare.trial import PairTrial
    from app.ui.models.library_service import LibraryService


_BEHIND_WINDOWS = (
    "app.models.downloads.queue",
    "app.models.hub.heads",
    "app.models.library.library",
)


def import_models() -> None:
    """Import what is behind the windows with models and settings, HTTP above all. For another thread.

    Nothing of Qt's: PySide makes a class when it is first imported or used, and crashes when two threads do that.
    """
    for name in _BEHIND_WINDOWS:
        import_module(name)


class ModelsCoordinator(QObject):
    """One for a main window.

    Attributes:
        lane: For what can wait.
        proposal: The model that is proposed instead of the guide or the starter model.

    Signals:
        plain_speed_measured: A trial measured the plain speed, tokens per second.
    """

    plain_speed_measured = Signal(float)

    def __init__(
        self,
        transcript: Transcript,
        engine: EngineClient,
        queue: EngineQueue,
        pair_loader: PairLoader,
        chats: OpenChats,
        notice_list: NoticeList,
        values: Settings,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._transcript = transcript
        self._engine = engine
        self._queue = queue
        self._pair_loader = pair_loader
        self._chats = chats
        self._notice_list = notice_list
        self._values = values
        self._trial: PairTrial | None = None
        self._library: LibraryService | None = None
        self._has_offered = False
        self.proposal: Offer | None = None
        self.lane = Lane(self, "imports")
        pair_loader.pair_changed.connect(self._on_pair_changed)

    def close(self) -> None:
        """The main window is closed."""
        if self._trial is not None:
            self._trial.close()
        self.lane.close()
        if self._library is not None:
            self._library.close()

    def library(self) -> LibraryService:
        """The models on this computer, created if necessary."""
        if self._library is None:
            from app.ui.models.library_service import LibraryService

            self._library = LibraryService(self._values, self._pair_loader.planner.memory.machine, self)
        return self._library

    # ------------------------------------------------------------ images

    def blindness(self) -> Notice | None:
        """What to say if the loaded model can't see images; ``None`` if it can, or none is loaded."""
        pair = self._pair_loader.pair()
        if pair is not None and pair.remote is not None:
            reason = pair.remote.refused.get("images")
            return notices.plain_text(reason) if reason else None
        if pair is None or pair.projector is not None:
            return None
        model = self.seeing_model()
        size = model.mmproj.size if model is not None and model.mmproj is not None else None
        left_out = NO_MEMORY_FOR_IMAGES if NO_MEMORY_FOR_IMAGES in self._pair_loader.remark() else None
        return notices.cannot_see(
            "" if model is None else f"{size_text(size)} to download" if size else "mmproj",
            pair.projector_refused or left_out,
        )

    def sees(self) -> bool:
        """Whether a model is loaded that can see images."""
        return self._pair_loader.pair() is not None and self.blindness() is None

    def seeing_model(self) -> CatalogModel | None:
        """The loaded model, if the catalog has it and knows that it can see images."""
        from app.models.hub.catalog import load_catalog  # not needed before the first picture

        pair = self._pair_loader.pair()
        return load_catalog().seeing(*pair.target.names) if pair is not None else None

    # ------------------------------------------------------------ trials

    @Slot(object)
    def _on_pair_changed(self, pair: PairLoaded | None) -> None:
        if self._trial is not None:
            self._trial.set_pair(None)
        self._notice_list.remove("better")
        if pair is None or pair.remote is not None or is_guide(pair.target.path):
            return
        self.library().note_use(*(model.path for model in pair.models))
        self._trials().set_pair(pair)
        if is_starter(pair.target.path):
            self.propose()
        else:
            self._transcript.introduce(proposal="")

    def _trials(self) -> PairTrial:
        if self._trial is None:
            from app.ui.compare.trial import PairTrial

            self._trial = PairTrial(self._engine, self._queue, self._chats, self.library().trials, self)
            self._trial.tried.connect(self._on_tried)
        return self._trial

    @Slot(object)
    def _on_tried(self, trial: Trial) -> None:
        self.plain_speed_measured.emit(trial.plain_speed)
        self.library().judge_again()

    # ------------------------------------------------------------ better than what came with the app

    def propose(self) -> None:
        """Suggest a model to download, while the guide or the starter model introduces itself."""
        if self._introduction().has_card:
            self.lane.submit(self._best_offer, self._show_proposal)

    def offer_better(self) -> None:
        """An answer is written again: if it is the starter model's, suggest a better one, once."""
        if self._introduction().model == "starter model" and not self._has_offered:
            self._has_offered = True
            self.lane.submit(self._best_offer, self._show_better)

    def _introduction(self) -> Introduction:
        return introduction(self._values, self._pair_loader.files())

    def _best_offer(self) -> Offer | None:
        """The best model for this machine, unless it is here, or one that is larger than the starter model in use."""
        from app.models.hub.catalog import load_catalog
        from app.models.library.library import open_library
        from app.models.origins import FILE_NAME as ORIGINS_NAME
        from app.models.origins import Origins

        if self._introduction().model == "starter model" and (starter := starter_file()) is not None:
            library = open_library(self._values.models_folder, self._values.extra_folders)
            found, size = library.scan(self.lane.is_closed), starter.stat().st_size
            has_larger = any(entry.usable and entry.size > size for entry in found)
            if has_larger or self._values.offline or has_work(paths.data_dir() / FILE_NAME):
                return None
        offer = load_catalog().propose(self._pair_loader.planner.memory.machine())
        known = {origin.repository for origin in Origins(paths.data_dir() / ORIGINS_NAME).all().values()}
        return offer if offer is not None and offer.file.repository not in known else None

    def _show_proposal(self, offer: Offer | None) -> None:
        if offer is not None and self._introduction().has_card:
            self.proposal = offer
            self._transcript.introduce(proposal=_words(offer))

    def _show_better(self, offer: Offer | None) -> None:
        if offer is not None and self._introduction().model == "starter model":
            self.proposal = offer
            self._notice_list.show("better", notices.better_model(_words(offer)))


def _words(offer: Offer) -> str:
    return f"{offer.model.title} ({size_text(offer.size)} to download)"
