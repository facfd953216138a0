"""The way from the main window to its models and settings. What is behind it is imported when it is first wanted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from app import paths
from app.models.downloads.queue_file import FILE_NAME, has_work
from app.models.machine import Machine
from app.protocol.messages import PairLoaded
from app.settings import Settings

if TYPE_CHECKING:
    from app.ui.models.library_service import LibraryService
    from app.ui.models.presenter import ModelsPresenter


class ModelsLauncher(QObject):
    """One for a main window. The signals are those of `ModelsPresenter`.

    Signals:
        open_requested, pair_requested, settings_changed, downloaded, needs_user: See there.
    """

    open_requested = Signal(str, str)
    pair_requested = Signal(str, str)
    settings_changed = Signal()
    downloaded = Signal(str, object)
    needs_user = Signal(str, str)

    def __init__(
        self,
        values: Settings,
        save: Callable[[], Future[None]],
        machine: Callable[[], Machine],
        is_loaded: Callable[[str], bool],
        parent: QObject | None = None,
    ) -> None:
        """``save`` keeps the settings as they are now; the future tells when that is done."""
        super().__init__(parent)
        self._values = values
        self._save = save
        self._machine = machine
        self._is_loaded = is_loaded
        self._library: LibraryService | None = None
        self._presenter: ModelsPresenter | None = None

    def library(self) -> LibraryService:
        """The models on this computer, made now if they are not yet."""
        if self._library is None:
            from app.ui.models.library_service import LibraryService

            self._library = LibraryService(self._values, self._machine, self)
        return self._library

    def presenter(self) -> ModelsPresenter:
        """What connects the windows, made now if there is none yet."""
        if self._presenter is None:
            from app.ui.models.presenter import ModelsPresenter

            self._presenter = presenter = ModelsPresenter(
                self._values, self.library(), self._machine, self._is_loaded, self._save, self
            )
            presenter.open_requested.connect(self.open_requested)
            presenter.pair_requested.connect(self.pair_requested)
            presenter.settings_changed.connect(self.settings_changed)
            presenter.downloaded.connect(self.downloaded)
            presenter.needs_user.connect(self.needs_user)
        return self._presenter

    def has_downloads(self) -> bool:
        """Whether downloads of the last time go on; then what they need is imported. For another thread."""
        if not has_work(paths.data_dir() / FILE_NAME):
            return False
        import app.ui.models.presenter  # noqa: F401

        return True

    def go_on_downloading(self) -> None:
        """Take up the downloads of the last time."""
        self.presenter()

    @Slot()
    def show_library(self) -> None:
        self.presenter().show_library()

    @Slot()
    def show_recommended(self) -> None:
        self.presenter().show_recommended()

    @Slot()
    def show_settings(self) -> None:
        self.presenter().show_settings()

    def note_use(self, pair: PairLoaded) -> None:
        """This pair was loaded just now."""
        self.library().note_use(*(model.path for model in (pair.target, pair.draft) if model is not None))

    def refresh(self) -> None:
        """What is known of pairs or of memory has changed."""
        if self._presenter is not None:
            self._presenter.refresh_library()

    def close(self) -> None:
        """The main window is closed."""
        if self._presenter is not None:
            self._presenter.close()
        if self._library is not None:
            self._library.close()
