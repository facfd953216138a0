"""Actions on whole chats and on the messages of the current one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from PySide6.QtCore import QObject, QTimer, Slot

from app import words
from app.chats.model import Chat, StoredMessage
from app.chats.settings import ChatSettings
from app.chats.tree import Deletion
from app.chats.worker import Opened
from app.markdown.find import count_matches
from app.protocol.commands import CheckText
from app.protocol.events import PairLoaded, TextChecked
from app.settings import Pair
from app.system import KnownError
from app.ui import notices
from app.ui.actions import Choice
from app.ui.chat.context_meter import LEAST_ANSWER
from app.ui.chat.conversation import can_continue, ends_with_calls, last_turn, was_cut
from app.ui.chat.footer import figures_of
from app.ui.chat.list.model import UNTITLED
from app.ui.chat.model import ChatModel, ChatState
from app.ui.context import AppContext
from app.ui.engine import EngineState
from app.ui.engine.pair_names import PairFiles, is_author
from app.ui.shell.main_window import MainWindow

if TYPE_CHECKING:
    from app.ui.chat.transfers import ChatTransfers, Printing


_STEP = 0.3
"""Temperature changes for a slightly more or less varied answer."""
_Texts = tuple[str, str]
"""The texts of an answer and of its thinking."""


class Messages(QObject):
    """One for a window. ``continued``: the cut-off answer that can be continued now."""

    def __init__(self, ctx: AppContext, window: MainWindow) -> None:
        super().__init__(window)
        self.continued: str | None = None
        self._ctx = ctx
        self._window = window
        self._chats = ctx.chats
        self._operations = ctx.operations
        self._engine = ctx.engine
        self._pair_loader = ctx.loader
        window.find_bar.begin(ctx.chats)
        self._model = ctx.chats.current
        self._asked: tuple[int, _Texts] | None = None
        """The pending request for tokens of an answer's texts, and these texts."""
        self._found: tuple[_Texts, str, list[int]] | None = None
        """Tokens by the texts of an answer and the model that would continue it."""
        self._to_regenerate: tuple[str, str, Pair] | None = None
        """The chat and the answer to regenerate when this pair is loaded."""
        ctx.engine.text_checked.connect(self._on_text_checked)
        ctx.engine.state_changed.connect(self._on_engine_state_changed)
        ctx.loader.pair_changed.connect(self._on_pair_changed)
        ctx.loader.pair_opened.connect(self._on_pair_opened)
        ctx.loader.pair_refused.connect(self._on_pair_refused)
        # The focus goes to the message with the match, else back to the composer.
        window.find_bar.closed.connect(window.composer.setFocus)
        follow = ctx.chats.follow
        follow(self._show, state_changed=self._refresh, branch_changed=self._refresh, answer_ended=self._refresh)

    def _show(self, model: ChatModel) -> None:
        if self._model is not model and self._model.is_temporary:
            self._operations.forget([self._model.id])
        self._model = model
        self._to_regenerate = None
        self._refresh()

    def _message(self, message_id: str) -> StoredMessage | None:
        model = self._chats.current
        place = model.place(message_id)
        return model.messages[place] if place is not None else None

    # ------------------------------------------------------------ continue

    @Slot()
    def _refresh(self) -> None:
        """Find out whether the last answer can be continued; ask the engine if only it knows."""
        pair, model = self._pair_loader.pair(), self._chats.current
        last = model.messages[-1] if model.messages else None
        is_cut = model.state is ChatState.IDLE and last is not None and was_cut(last)
        if not is_cut or last is None or pair is None or not _has_room(last, len(model.messages) > 2, pair):
            self._tell(None)
        elif pair.remote is not None:
            self._tell(last.id if pair.remote.can_continue or ends_with_calls(last) else None)
        elif self._has_tokens(last, pair):
            self._tell(last.id)
        else:
            self._tell(None)
            texts = last_turn(last)
            if self._engine.state() is EngineState.READY and (self._asked is None or self._asked[1] != texts):
                thinking = pair.usable_thinking(last.asked.thinking)
                question = CheckText(request=0, text=texts[0], thought=texts[1], thinking=thinking)
                request = self._engine.ask_aside(question)
                self._asked = (request, texts) if request else None

    def _has_tokens(self, message: StoredMessage, pair: PairLoaded) -> bool:
        """Whether the answer's tokens are known for this model."""
        if can_continue(message) and (is_author(pair, message.pair) or ends_with_calls(message)):
            return True
        return self._found is not None and self._found[:2] == (last_turn(message), pair.target.path)

    @Slot(object)
    def _on_text_checked(self, checked: TextChecked) -> None:
        pair = self._pair_loader.pair()
        if self._asked is None or checked.request != self._asked[0]:
            return  # about an answer that is no longer shown, or of another model
        if checked.tokens and pair is not None:
            self._found = self._asked[1], pair.target.path, checked.tokens
            self._refresh()

    @Slot(object)
    def _on_pair_changed(self, _pair: PairLoaded | None) -> None:
        self._asked = None
        self._refresh()

    def _tell(self, message_id: str | None) -> None:
        if message_id != self.continued:
            self.continued = message_id
            self._window.transcript.set_continued(message_id)
            self._ctx.actions.refresh()

    def continue_answer(self, message_id: str | None = None) -> None:
        """Continue the last answer, if possible."""
        if self.continued is None or message_id not in (None, self.continued):
            return
        if self._pair_loader.remote() is not None:
            self._chats.current.continue_answer(self.continued, by_text=True)
            return
        message = self._message(self.continued)
        tokens = self._found[2] if self._found is not None else None
        is_own = message is not None and is_author(self._pair_loader.pair(), message.pair)
        if message is not None and can_continue(message) and (is_own or ends_with_calls(message)):
            tokens = None  # it has stored tokens, or needs none
        self._chats.current.continue_answer(self.continued, tokens)

    # ------------------------------------------------------------ delete

    def delete(self, message_id: str, following: bool) -> None:
        """Delete a message, optionally with all that follow; `ChatOperations.undo` brings them back."""
        model, place = self._chats.current, self._chats.current.place(message_id)
        # Counts shown messages only, not hidden versions.
        count = len(model.messages) - place if following and place is not None else 1

        def deleted(deletion: Deletion) -> None:
            if model.is_temporary and model is not self._chats.current:
                return  # already deleted
            text = "Deleted a message." if count == 1 else f"Deleted {words.number(count)} messages."
            self._operations.offer_undo(partial(self._undo, model.id, deletion), text, model.id)

        model.delete(message_id, deleted, following=following)

    def _undo(self, chat_id: str, deletion: Deletion, put_back: Callable[[str], None]) -> None:
        """Undo in this chat; opens it if another one is shown."""
        current = self._chats.current
        model = current if current.id == chat_id else self._chats.open(chat_id)
        self._when_idle(model, lambda model: self._bring_back(model, deletion, put_back), lambda: put_back(""))

    def _bring_back(self, model: ChatModel, deletion: Deletion, put_back: Callable[[str], None]) -> None:
        if not model.undo_deletion(deletion, lambda: put_back("")):
            put_back("You can undo this once the answer is finished.")

    def _when_idle(
        self, model: ChatModel, act: Callable[[ChatModel], None], not_opened: Callable[[], None] | None = None
    ) -> None:
        """Act now, or as soon as the chat's messages are loaded."""
        if model.state is not ChatState.OPENING:
            act(model)
            return

        def changed(state: ChatState) -> None:
            if state is not ChatState.OPENING:
                QObject.disconnect(connection)
                if not model.must_open:
                    act(model)
                elif not_opened is not None:
                    not_opened()

        connection = model.state_changed.connect(changed)

    # ------------------------------------------------------------ go to a message

    def step(self, step: int) -> None:
        """Go to the next or previous message; after the last one comes the composer."""
        if not self._window.transcript.step_message(step):
            self._window.composer.setFocus()

    def open_message(self, chat_id: str, message_id: str) -> None:
        """Show a message found in the list of chats, with the search words."""
        searched = self._window.chat_list.search_field.text().strip()

        def there(model: ChatModel) -> None:
            place = model.place(message_id)
            if place is not None and model is self._chats.current:
                self._show_found(model.messages[place], searched)

        def opened(model: ChatModel) -> None:
            model.show_message(message_id)
            self._when_idle(model, there)

        self._when_idle(self._chats.open(chat_id), opened)

    def _show_found(self, message: StoredMessage, searched: str) -> None:
        self._window.transcript.show_message(message.id)
        is_plain, texts = message.role == "user", (message.text, message.thinking)
        for one in (searched, *sorted(searched.split(), key=len, reverse=True)):
            if one and any(count_matches(text, one, plain=is_plain) for text in texts):
                self._window.find_bar.look_for(one, message.id)
                return

    # ------------------------------------------------------------ branch

    def can_branch(self) -> bool:
        """Not possible for temporary chats."""
        current = self._chats.current
        return current.state is ChatState.IDLE and bool(current.messages) and not current.is_temporary

    def branch(self, message_id: str = "") -> None:
        """Open a new chat with the messages up to this one, by default the focused one, else the last."""
        model = self._chats.current
        if not message_id and model.messages:
            message_id = self._window.transcript.focused_message() or model.messages[-1].id
        if not self.can_branch() or model.place(message_id) is None:
            return
        chat_id = model.id

        def done(chat: Chat) -> None:
            self._operations.refresh()
            if self._chats.current is model:
                self._chats.open(chat.id)

        model.writer.read(lambda store: store.copy_branch(chat_id, message_id), done, model.failed.emit)

    # ------------------------------------------------------------ regenerate with something else

    def regenerate_choices(self, message_id: str) -> list[Choice]:
        """The choices for `regenerate_with`."""
        message, model = self._message(message_id), self._chats.current
        if message is None:
            return []
        ways: list[Choice] = []
        if message.seed is not None:
            tools = {"tools": model.settings.tools, "folders": model.settings.folders}
            same = msgspec.structs.replace(ChatSettings.of_answer(message.asked), **tools)
            ways.append(Choice("The same settings and seed", (same, message.seed)))
        temperature = self._chats.answers.settings(model.settings).sampling.temperature
        ways.append(Choice("More variety", (self._varied(temperature + _STEP),)))
        if temperature > 0:
            ways.append(Choice("Less variety", (self._varied(max(0.0, temperature - _STEP)),)))
        remote = self._pair_loader.remote()
        if remote is None or remote.can_switch_drafting:
            ways.append(Choice("Without a draft", (msgspec.structs.replace(model.settings, drafter="none"),)))
        recent = self._ctx.actions.choices("load_recent")
        return [*ways, *([Choice("")] if recent else []), *recent]

    def _varied(self, temperature: float) -> ChatSettings:
        settings = self._chats.current.settings
        sampling = msgspec.structs.replace(settings.sampling, temperature=round(min(temperature, 10.0), 2))
        return msgspec.structs.replace(settings, sampling=sampling)

    def regenerate_with(self, message_id: str, other: ChatSettings | Pair, seed: int | None = None) -> None:
        """Regenerate with other settings, or with another pair, which is loaded first; load failures are reported
        there.
        """
        files, model = self._pair_loader.files(), self._chats.current
        if isinstance(other, ChatSettings):
            model.regenerate(message_id, other, seed=seed)
            return
        pair = other
        if self._pair_loader.pair() is not None and files is not None and _is_pair(files, pair):
            model.regenerate(message_id)
            return
        self._to_regenerate = model.id, message_id, pair
        self._ctx.actions.run("load_recent", pair)

    @Slot(EngineState)
    def _on_engine_state_changed(self, state: EngineState) -> None:
        if state in (EngineState.EMPTY, EngineState.DIED) and not self._pair_loader.is_planning():
            self._to_regenerate = None  # its pair couldn't be loaded: a later load must not regenerate
        self._refresh()

    @Slot()
    def _on_pair_refused(self) -> None:
        self._to_regenerate = None

    @Slot(object)
    def _on_pair_opened(self, files: PairFiles) -> None:
        wanted, self._to_regenerate = self._to_regenerate, None
        if wanted is not None and _is_pair(files, wanted[2]) and self._chats.current.id == wanted[0]:
            self._chats.current.regenerate(wanted[1])


def _has_room(message: StoredMessage, has_earlier: bool, pair: PairLoaded) -> bool:
    """Whether an answer can continue in this context, as far as known here. ``has_earlier``: earlier messages exist,
    which may be left out of it.
    """
    figures = figures_of(message.figures)
    may_drop = has_earlier and message.asked.overflow != "stop"
    # Another model has other tokens, so their number is unknown.
    is_known = figures.prompt_tokens > 0 and is_author(pair, message.pair)
    taken = figures.prompt_tokens + len(message.tokens)
    is_known = is_known and pair.context_length > 0
    return may_drop or not is_known or taken <= pair.context_length - LEAST_ANSWER


def _is_pair(files: PairFiles, pair: Pair) -> bool:
    return (files.target, files.draft or None, files.server) == (pair.target, pair.draft or None, pair.server)


_DAY_MS = 24 * 60 * 60 * 1000


class Chats(QObject):
    """One for a main window. Chats are identified by their ids."""

    def __init__(self, ctx: AppContext, window: MainWindow) -> None:
        super().__init__(window)
        self._ctx = ctx
        self._window = window
        self._chats = ctx.chats
        self._operations = operations = ctx.operations
        self._daily = QTimer(self, interval=_DAY_MS)
        self._daily.timeout.connect(operations.tidy)
        ctx.closing.callback(self._daily.stop)
        ctx.chats.opened.connect(self._on_opened)
        ctx.chats.current_changed.connect(self._remember)
        ctx.chats.created.connect(self._on_created)
        operations.chats_restored.connect(self._on_restored)
        operations.deletion_done.connect(window.undo_bar.offer)
        operations.undo_changed.connect(window.undo_bar.withdraw)  # the offer is no longer about the last deletion
        window.chat_list.begin(operations)
        self._on_opened(ctx.chats.current)

    # ------------------------------------------------------------ which chat is shown

    def begin(self) -> None:
        """Show the chat that was shown last, as soon as the store is open."""
        self._ctx.store.when_open(self._on_store_opened, self._on_store_unavailable)
        self._daily.start()

    def _on_store_opened(self, opened: Opened) -> None:
        if opened.notice:
            self._ctx.notices.show("store", notices.plain_text(opened.notice))
        if opened.may_have_copies:
            self._ctx.engine.forget()
        last = self._ctx.settings.values.last_chat_id
        self._ctx.store.ask(
            lambda store: any(chat.id == last for chat in store.chats()),
            lambda exists: self._chats.begin(last if exists else None),
        )
        self._operations.refresh()

    def _on_store_unavailable(self, error: KnownError) -> None:
        """Continue with a temporary store for this session; the files on the disk are not touched."""
        self._ctx.store.use_temporary()
        self._ctx.notices.show("store", notices.chats_unavailable(str(error)))
        self._ctx.settings.values.last_chat_id = None
        self._chats.save_again()
        self._chats.begin(None)
        self._operations.refresh()

    @Slot(object)
    def _on_opened(self, model: ChatModel) -> None:
        if not model.is_temporary:
            model.stored.connect(self._operations.refresh)

    @Slot(object)
    def _on_created(self, model: ChatModel) -> None:
        if model is self._chats.current:
            self._remember(model)

    @Slot(object)
    def _remember(self, model: ChatModel) -> None:
        chat_id = None if model.is_new or model.is_temporary else model.id
        self._window.chat_list.set_current(chat_id)
        self._ctx.settings.values.last_chat_id = chat_id
        self._ctx.settings.save_soon()
        self._ctx.actions.refresh()

    @Slot(object, object)
    def _on_restored(self, _chat_ids: list[str], shown: str | None) -> None:
        if shown is not None:
            self._chats.open(shown)

    # ------------------------------------------------------------ actions on chats

    @cached_property
    def _transfers(self) -> ChatTransfers:
        """Made on demand."""
        from app.ui.chat.transfers import ChatTransfers

        transfers = ChatTransfers(self._ctx.store, self)
        transfers.chats_added.connect(self._operations.refresh)
        self._ctx.closing.callback(transfers.close)
        return transfers

    @cached_property
    def _printing(self) -> Printing:
        from app.ui.chat.transfers import Printing

        printing = Printing(self)
        self._ctx.closing.callback(printing.close)
        return printing

    @Slot()
    def new_chat(self) -> None:
        self._chats.new()
        self._window.composer.setFocus()

    def new_temporary_chat(self) -> None:
        """Show a chat that is never stored."""
        self._chats.new_temporary()
        self._window.composer.setFocus()

    def delete_chats(self, chat_ids: Sequence[str]) -> None:
        """Move chats to the trash, shown or not; `ChatOperations.undo` brings them back.

        Closes them first, so that nothing is written to them while the store deletes them.
        """
        shown = self._chats.current.id
        self._chats.forget(chat_ids)
        if shown in chat_ids and not self._window.chat_list.view.hasFocus():
            self._window.composer.setFocus()
        self._operations.delete(chat_ids, shown if shown in chat_ids else None)

    def import_chats(self, paths: Sequence[Path] = ()) -> None:
        """Import chats from these files of other apps; asks for files if there are none."""
        from app.ui.chat.transfers import ImportDialog

        dialog = ImportDialog(self._transfers, self._window)
        dialog.shown_requested.connect(self._show_imported)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        if paths:
            dialog.read(paths)

    def _show_imported(self, chat_ids: Sequence[str]) -> None:
        self._window.show_panel("chats")
        self._window.chat_list.show_chats()
        if (folder_id := self._operations.folder_id(chat_ids[0])) is not None:
            self._window.chat_list.view.open_folder(folder_id, True)
        self._chats.open(chat_ids[0])

    def export_chats(self, chat_ids: Sequence[str]) -> None:
        """Ask for format and destination, and export."""
        if not chat_ids:
            return
        from app.ui.chat.transfers import ExportDialog

        chats = [(chat_id, self._operations.title(chat_id)) for chat_id in chat_ids]
        dialog = ExportDialog(self._transfers, chats, self._window)
        dialog.exported.connect(self._on_exported)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def export_shown_chat(self) -> None:
        if not self._chats.current.is_new:
            self.export_chats([self._chats.current.id])

    def export_all_chats(self) -> None:
        self.export_chats(self._operations.chat_ids())

    def print_shown_chat(self) -> None:
        if self._chats.current.is_new:
            return
        chat_id, printing = self._chats.current.id, self._printing
        title = self._operations.title(chat_id) or UNTITLED
        self._transfers.for_paper(chat_id, lambda html: printing.ask(html, title, self._window), self._tell)

    def _on_exported(self, path: Path) -> None:
        self._ctx.notices.show("export", notices.exported(path.name))

    def _tell(self, error: KnownError) -> None:
        self._ctx.notices.show("export", notices.plain_text(str(error)))

    def show_trash(self) -> None:
        self._window.show_panel("chats")
        self._window.chat_list.show_trash()

    def search_chats(self) -> None:
        self._window.show_panel("chats")
        self._window.chat_list.focus_search()

    def rename_chat(self) -> None:
        self._window.show_panel("chats")
        self._window.chat_list.rename_current()

    def delete_shown_chat(self) -> None:
        if not self._chats.current.is_new:
            self.delete_chats([self._chats.current.id])
