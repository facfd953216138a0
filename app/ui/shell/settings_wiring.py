"""Keeps the window as the settings say, and stores what is changed in the window itself."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import QObject, QTimer, Slot

from app.protocol.options import DrafterChoice, DraftLength
from app.settings import SettingsFile
from app.ui import notices
from app.ui.actions import Actions
from app.ui.chat.markdown.code_headers import code_wrap
from app.ui.chat.open_chats import OpenChats
from app.ui.compare.launcher import CompareLauncher
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_files import PairFiles
from app.ui.notices import NoticeList
from app.ui.settings import in_use
from app.ui.settings.saver import SettingsSaver
from app.ui.shell.main_window import MainWindow
from app.ui.shell.zoom import Zoom

SETTINGS_DELAY_MS = 1000


class SettingsWiring(QObject):
    """One for a main window.

    Attributes:
        saver: Writes the file.
        zoom: How large everything is.
    """

    def __init__(
        self,
        window: MainWindow,
        actions: Actions,
        settings: SettingsFile,
        chats: OpenChats,
        pair_loader: PairLoader,
        compare: CompareLauncher,
        notice_list: NoticeList,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._window = window
        self._actions = actions
        self._values = settings.values
        self._chats = chats
        self._pair_loader = pair_loader
        self._compare = compare
        self._delay = QTimer(self, singleShot=True, interval=SETTINGS_DELAY_MS)
        self._delay.timeout.connect(self.save)
        self.saver = SettingsSaver(settings, self)
        self.saver.save_failed.connect(lambda error: notice_list.show("settings", notices.plain_text(str(error))))
        self.zoom = Zoom(window, actions, self._values, self.save_soon)
        panel = window.speed_panel
        panel.draft_length.value_changed.connect(self._on_draft_length_changed)
        panel.drafter.choice_changed.connect(self._on_drafter_changed)
        window.panels_changed.connect(self.save_soon)
        pair_loader.pair_opened.connect(self._on_pair_opened)
        code_wrap().set_on(self._values.code_wrap)
        code_wrap().changed.connect(self._on_code_wrap_changed)

    @Slot()
    def save_soon(self) -> None:
        """Something was changed that needn't be applied."""
        self._delay.start()

    @Slot()
    def save(self) -> None:
        """Write them now, with the size and the panels of the window."""
        self._delay.stop()
        self._window.store(self._values)
        self.saver.save()

    def close(self) -> None:
        """Returns when everything is written, or a disk takes too long."""
        self.saver.close()

    @Slot()
    def change(self) -> None:
        """Something was changed that is to be applied."""
        self.apply()
        self.save_soon()

    @Slot()
    def apply(self) -> None:
        """Show in panel, menus and transcript what holds for the chat that is shown."""
        values, window = self._values, self._window
        settings = self._chats.queue.settings(self._chats.current.settings)
        window.speed_panel.set_draft_length(settings.draft_length)
        window.speed_panel.set_drafter(settings.drafter)
        window.speed_panel.show_drafted.box.setChecked(values.drafted_visible)
        window.transcript.set_show_drafted(values.drafted_visible)
        self._compare.set_show_drafted(values.drafted_visible)
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
        self.save_soon()

    @Slot(object)
    def _on_draft_length_changed(self, length: DraftLength) -> None:
        self._values.draft_length = None if length == "auto" else length
        self.change()

    @Slot(str)
    def _on_drafter_changed(self, drafter: DrafterChoice) -> None:
        current = self._chats.current
        current.set_settings(msgspec.structs.replace(current.settings, drafter=drafter))

    @Slot()
    def _on_code_wrap_changed(self) -> None:
        self._values.code_wrap = code_wrap().is_on
        self.save_soon()
