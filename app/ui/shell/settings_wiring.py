"""Keeps the window as the settings say, and stores what is changed in the window itself."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import QObject, Slot

from app.protocol.options import DrafterChoice, DraftLength
from app.ui.chat.markdown.code_headers import code_wrap
from app.ui.context import AppContext
from app.ui.engine.pair_files import PairFiles
from app.ui.settings import in_use
from app.ui.shell.main_window import MainWindow
from app.ui.shell.zoom import Zoom


class SettingsWiring(QObject):
    """One for a main window.

    Attributes:
        zoom: How large everything is.
    """

    def __init__(
        self,
        window: MainWindow,
        ctx: AppContext,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._window = window
        self._settings = ctx.settings
        self._actions = ctx.actions
        self._values = ctx.settings.values
        self._chats = ctx.chats
        self._pair_loader = ctx.loader
        ctx.settings.changed.connect(self.apply)
        ctx.settings.changed.connect(self.apply_offline)
        ctx.settings.saving.connect(lambda: window.store(self._values))
        self.zoom = Zoom(window, ctx.actions, ctx.settings)
        panel = window.speed_panel
        panel.draft_length.value_changed.connect(self._on_draft_length_changed)
        panel.drafter.choice_changed.connect(self._on_drafter_changed)
        window.panels_changed.connect(ctx.settings.save_soon)
        ctx.loader.pair_opened.connect(self._on_pair_opened)
        code_wrap().set_on(self._values.code_wrap)
        code_wrap().changed.connect(self._on_code_wrap_changed)

    @Slot()
    def apply(self) -> None:
        """Show in panel, menus and transcript what holds for the chat that is shown."""
        values, window = self._values, self._window
        settings = self._chats.answers.settings(self._chats.current.settings)
        window.speed_panel.set_draft_length(settings.draft_length)
        window.speed_panel.set_drafter(settings.drafter)
        window.speed_panel.show_drafted.box.setChecked(values.drafted_visible)
        window.transcript.set_show_drafted(values.drafted_visible)
        self._actions.qaction("show_drafted").setChecked(values.drafted_visible)
        self._actions.qaction("wrap_code").setChecked(values.code_wrap)
        self._actions.refresh()

    @Slot()
    def apply_offline(self) -> None:
        """Offline, a server on another computer isn't used any more: connecting again says so."""
        if not self._values.offline:
            return
        remote = self._pair_loader.remote()
        if remote is not None and not remote.server.is_loopback:
            self._pair_loader.load_again()

    @Slot(object)
    def _on_pair_opened(self, files: PairFiles) -> None:
        in_use.keep_opened(self._values, files)
        self._actions.refresh()
        self._settings.save_soon()

    @Slot(object)
    def _on_draft_length_changed(self, length: DraftLength) -> None:
        self._values.draft_length = None if length == "auto" else length
        self._settings.apply()

    @Slot(str)
    def _on_drafter_changed(self, drafter: DrafterChoice) -> None:
        current = self._chats.current
        current.set_settings(msgspec.structs.replace(current.settings, drafter=drafter))

    @Slot()
    def _on_code_wrap_changed(self) -> None:
        self._values.code_wrap = code_wrap().is_on
        self._settings.save_soon()
