"""The parts behind the main window, made in order: each takes the context and its widgets, and connects itself."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from app.markdown.dialect import parser
from app.ui.chat.attachments import Attachments
from app.ui.chat.chat_tools import ChatTools
from app.ui.chat.context_meter import ContextMeter
from app.ui.chat.markdown import view  # noqa: F401 - for the first message
from app.ui.compare.trial import PairTrial
from app.ui.context import AppContext
from app.ui.models.library_service import LibraryService
from app.ui.models.opening import Opening
from app.ui.models.proposals import Proposals
from app.ui.notices import Notice
from app.ui.server.control import ServerControl
from app.ui.server.serving import Serving
from app.ui.shell.announcer import Announcer
from app.ui.shell.main_window import MainWindow
from app.ui.shell.menus import EditMenu, Zoom
from app.ui.shell.messages import Chats, Messages
from app.ui.shell.other_windows import OtherWindows
from app.ui.shell.speed_presenter import SpeedPresenter

if TYPE_CHECKING:
    from app.ui.compare.window import CompareWindow
    from app.ui.tools.questions import ToolQuestions


class App(QObject):
    """One for a main window; `app.ui.shell.all_actions` says what the user can do with it.

    Attributes:
        ctx: What its parts have been made with.
        window: What shows them.
    """

    def __init__(self, ctx: AppContext, window: MainWindow) -> None:
        super().__init__(window)
        self.ctx = ctx
        self.window = window
        window.begin(ctx)
        window.transcript.begin(ctx.chats)
        window.composer.begin(ctx)
        window.settings_tab.begin(ctx)
        self.context_meter = ContextMeter(ctx, window.composer, window.top_bar.show_context)
        self.attachments = Attachments(ctx, window.composer, window.drop_area, self.context_meter)
        self.tools = ChatTools(ctx, window.composer, self.attachments)
        self.library = LibraryService(ctx.settings.values, ctx.loader.planner.memory.machine, self)
        ctx.closing.callback(self.library.close)
        self.trial = PairTrial(ctx, self.library.trials, self)
        self.proposals = Proposals(ctx, window.transcript, self)
        self.serving = Serving(ctx.engine, ctx.queue, ctx.loader, ctx.notices, parent=self)
        self.server = ServerControl(self.serving, lambda: ctx.settings.values.server, self)
        ctx.closing.callback(self.server.close)
        window.serving_bar.follow(self.serving)
        self.speed = SpeedPresenter(ctx, window)
        self.opening = Opening(ctx, window, self.library)
        self.windows = OtherWindows(ctx, window, self.library, self.proposals, self.server)
        self.messages = Messages(ctx, window)
        self.chat_list = Chats(ctx, window)
        self.edit_menu = EditMenu(ctx, window.edit_menu)
        self.zoom = Zoom(ctx, window)
        Announcer(ctx, window)
        self._connect()
        self._connect_actions()

    def begin(self, notices_at_start: dict[str, Notice] | None = None) -> None:
        """Load the pair, open the chats; call when the window has been painted."""
        for subject, notice in (notices_at_start or {}).items():
            self.ctx.notices.show(subject, notice)
        self.opening.begin()
        self.chat_list.begin()
        self.server.apply()
        self.ctx.tools.begin()
        self.windows.begin()
        parser()  # made now, not with the first message

    @Slot()
    def shut_down(self) -> None:
        """Store everything, end the engine, close the store; returns when that is done."""
        self.ctx.closing.close()

    @cached_property
    def compare(self) -> CompareWindow:
        """The Compare window, made when it is first wanted."""
        from app.ui.compare.window import CompareWindow

        return CompareWindow(self.ctx)

    @cached_property
    def tool_questions(self) -> ToolQuestions:
        """What servers ask the user, made when one first does."""
        from app.ui.tools.questions import ToolQuestions

        return ToolQuestions(self.ctx.tools, self.ctx.queue, self.window)

    def _connect(self) -> None:
        ctx = self.ctx
        ctx.tools.asked.connect(lambda asked: self.tool_questions.ask(asked))  # noqa: PLW0108 - made when it is asked
        ctx.engine.forgotten.connect(ctx.operations.finish_erasing)
        ctx.operations.copies_unwanted.connect(ctx.engine.forget)
        ctx.loader.pair_changed.connect(self.library.note_pair)
        self.trial.tried.connect(lambda trial: self.speed.note_plain_speed(trial.plain_speed))
        self.trial.tried.connect(lambda _: self.library.judge_again())

    def _connect_actions(self) -> None:
        """Look again at what can be done, whenever that may have changed."""
        ctx, refresh = self.ctx, self.ctx.actions.refresh
        ctx.engine.state_changed.connect(refresh)
        ctx.queue.changed.connect(refresh)
        ctx.loader.pair_changed.connect(refresh)
        ctx.operations.undo_changed.connect(refresh)
        ctx.settings.changed.connect(refresh)
        ctx.chats.answers.begun.connect(lambda live: live.thinking_changed.connect(refresh))
        ctx.chats.follow(lambda _model: refresh(), state_changed=refresh, branch_changed=refresh)
        ctx.actions.begin(self)

    def hide_introduction(self) -> None:
        self.proposals.hide_introduction()
        self.window.composer.setFocus()
