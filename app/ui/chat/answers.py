"""Has the engine write the answers of chats, once their questions are stored and may go to the server in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import msgspec
from PySide6.QtCore import QObject, Signal, Slot

from app import words
from app.chats.model import Attachment, Status, StoredCall, StoredMessage, title_for
from app.chats.settings import ChatSettings
from app.protocol.answering import AnswerSettings
from app.protocol.commands import Generate
from app.protocol.events import GenerationFailed, GenerationFinished, PairLoaded, RoundsReceived
from app.protocol.remote import RemoteModel
from app.settings import Settings
from app.tools.messages import BUILT_IN, Attached, CallEnded
from app.tools.offered import problem_of
from app.ui import notices
from app.ui.chat.footer import WHILE_WRITTEN
from app.ui.chat.live_answer import LiveAnswer
from app.ui.engine import Priority, pair_names
from app.ui.engine.pair import PairLoader
from app.ui.engine.queue import EngineQueue, Job, Loss
from app.ui.notices import NoticeList
from app.ui.widgets.tasks import BUG

if TYPE_CHECKING:
    from app.tools.offered import OfferedTool
    from app.ui.tools.service import ToolJob, ToolService

CONSENT = "consent"
"""Subject of the notice that asks whether a chat may go to a server."""
SERVER = "server"
"""Subject of the notice about an answer that a server didn't finish."""
Decision = Literal["once", "chat", "always", "deny"]
"""About a tool call; ``chat`` and ``always`` allow the tool from now on."""
ENGINE_LOST = f"The engine stopped{WHILE_WRITTEN}"


class HostConsent:
    """One for a window. Servers on this computer need no consent.

    What was allowed lasts until Slipstream ends. After that the chat itself tells: each answer is stored with the
    address of the server that wrote it, so everything up to the last answer has been there if that wrote it.
    """

    def __init__(self, remote: Callable[[], RemoteModel | None]) -> None:
        """``remote``: the server's model in use, if it is one."""
        self._remote = remote
        self._allowed: set[tuple[str, str]] = set()
        """Chats and hosts."""

    def host(self) -> str:
        """The computer of the server in use; empty if it is this computer."""
        remote = self._remote()
        return "" if remote is None or remote.server.is_loopback else _host(remote.server.address)

    def allow(self, chat_id: str) -> None:
        """This chat may go to the server in use."""
        if host := self.host():
            self._allowed.add((chat_id, host))

    def is_needed(self, chat_id: str, branch: Sequence[StoredMessage]) -> bool:
        """Whether the user has to be asked before these messages of a chat go to the server in use."""
        host = self.host()
        if not host or not branch or (chat_id, host) in self._allowed:
            return False
        last = next((message for message in reversed(branch) if message.role == "assistant"), None)
        return last is None or _host_of(last) != host


def _host_of(message: StoredMessage) -> str:
    """The computer that wrote an answer; empty if it was this one."""
    if '"server"' not in message.settings_json:
        return ""
    address = message.settings.get("server")
    return _host(address) if isinstance(address, str) else ""


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or address
    except ValueError:
        return address


class Answers(QObject):
    """One for a window.

    Attributes:
        resolve: From a chat's settings and the loaded pair to how the engine is asked.
        consent: Which chats may go to a server.
        queue: Who has the engine.
        open: The answers that are wanted; the queue has those that can be asked for.
        tools: The tools that the model may call; ``None`` if there are none.
        most_calls: How many calls an answer may make.

    Signals:
        begun: The `LiveAnswer` the engine is being asked for.
        not_finished: A `LiveAnswer` that nobody finishes, and a notice that says why.
    """

    begun = Signal(object)
    not_finished = Signal(object, object)

    def __init__(
        self,
        queue: EngineQueue,
        pair_loader: PairLoader,
        notice_list: NoticeList,
        resolve: Callable[[ChatSettings, PairLoaded | None], AnswerSettings],
        parent: QObject | None = None,
        *,
        tools: ToolService | None = None,
        most_calls: Callable[[], int] = lambda: Settings().most_tool_calls,
    ) -> None:
        super().__init__(parent)
        self.resolve = resolve
        self.consent = HostConsent(pair_loader.remote)
        self.queue = queue
        self._pair_loader = pair_loader
        self._notice_list = notice_list
        self.open: list[LiveAnswer] = []
        self.tools = tools
        self.most_calls = most_calls
        self._unallowed: LiveAnswer | None = None
        """What waits for the user's consent."""
        pair_loader.pair_changed.connect(self._on_pair_changed)

    def settings(self, chat: ChatSettings) -> AnswerSettings:
        """How an answer in a chat with these settings would be asked for now."""
        return self.resolve(chat, self._pair_loader.pair())

    # ------------------------------------------------------------ what chats ask for

    def add(self, live: LiveAnswer) -> None:
        """Have this written when its turn comes, but not before it ``is_stored``: see `go_on`."""
        if len(live.branch) == live.branch[-1].versions == 1 and not live.is_stored:
            self.consent.allow(live.chat_id)  # it begins now, with the server that is shown
        self.open.append(live)
        self.go_on()

    @Slot()
    def go_on(self) -> None:
        """Submit what can be asked now that something was stored or allowed."""
        self._ask_for_consent()
        for live in [one for one in self.open if one.job is None and one.is_stored]:
            if live.asks_again:
                self._ask_again(live)
            elif not self.consent.is_needed(live.chat_id, live.branch) and not live.has_open_calls:
                self._submit(live)

    @Slot(object)
    def _on_pair_changed(self, pair: PairLoaded | None) -> None:
        """Without a pair nobody knows which server an answer would go to."""
        if pair is None:
            self._ask_for_consent()
        else:
            self.go_on()

    def stop(self, live: LiveAnswer) -> None:
        """Stop this answer."""
        if live.job is not None and not self.queue.cancel(live.job):
            return
        if live.message is None:
            self._withdraw(live)
        else:  # it waits for its calls, or for its next turn after them
            self._end(live, lambda: live.end("stopped", "cancelled"))

    def abandon(self, live: LiveAnswer) -> None:
        """End this answer at once, because its chat goes away."""
        if live.job is not None and live.job.is_running():
            self.queue.drop(live.job)
            self._end(live, lambda: live.end("stopped", "cancelled"))
        else:
            self.stop(live)

    def clear(self) -> None:
        """The window closes: what waits is withdrawn, what is being written is interrupted."""
        for live in list(self.open):
            if live.message is None:
                self.stop(live)
                continue
            if live.job is not None:
                self.queue.drop(live.job)
            self._end(live, partial(live.end, "interrupted"))

    def _withdraw(self, live: LiveAnswer) -> None:
        self.open.remove(live)
        live.withdrawn.emit()
        self._ask_for_consent()

    def _end(self, live: LiveAnswer, end: Callable[[], object]) -> None:
        self.open.remove(live)
        live.job = None
        jobs, live.tool_jobs = live.tool_jobs, {}
        for job in jobs.values():
            if self.tools is not None:
                self.tools.cancel(job)
        end()

    # ------------------------------------------------------------ tool calls

    def offered(self, chat: ChatSettings) -> list[OfferedTool]:
        """The tools that the model is offered in a chat with these settings."""
        if self.tools is None or pair_names.why_no_tools(chat.answer_format, self._pair_loader.pair()):
            return []
        return self.tools.offered(chat)

    def decide(self, live: LiveAnswer, call_id: str, decision: Decision, reason: str = "") -> None:
        """The user decides about a call in this answer. Does nothing if the call isn't waiting."""
        call = live.call(call_id)
        if call is None or call.state != "asked" or live not in self.open or self.tools is None:
            return
        tool, now_allowed = live.offered.get(call.name), None
        if decision == "deny":
            live.set_call(msgspec.structs.replace(call, state="denied", result=reason.strip()))
        elif tool is not None:
            if decision != "once" and tool.server in {BUILT_IN, *self.tools.entries}:
                self.tools.permissions.allow(tool, live.chat_id if decision == "chat" else "")
                now_allowed = tool
            self._run(live, call, tool)
        self._go_on_with_calls(live, lambda one: one == now_allowed)

    def _go_on_with_calls(self, live: LiveAnswer, is_allowed: Callable[[OfferedTool], bool]) -> None:
        """Run the calls that are allowed, and fail those that can't run. When all have ended, the model goes on."""
        for place, call in enumerate(live.calls):
            tool = live.offered.get(call.name)
            if call.state != "asked":
                continue
            if problem := self._problem(place, tool, call):
                live.is_over_limit |= place >= self.most_calls()
                live.set_call(msgspec.structs.replace(call, state="failed", result=problem))
            elif tool is not None and is_allowed(tool):
                self._run(live, call, tool)
        if live in self.open and live.job is None and not live.has_open_calls:
            self._submit(live)

    def _problem(self, place: int, tool: OfferedTool | None, call: StoredCall) -> str:
        """Why a call can't run, for the model; empty if the user can allow it."""
        if place >= (most := self.most_calls()):
            calls = "1 tool call" if most == 1 else f"{most} tool calls"
            return f"An answer may make {calls}, so this one did not run. Answer with what you know now."
        # A continued or imported call may have been for a different tool than the one with this name now.
        if tool is None or (tool.server, tool.tool.name) != (call.server, call.tool or call.name):
            return f"There is no tool called {call.name}."
        return problem_of(call.arguments, tool)

    def _is_allowed(self, tool: OfferedTool, live: LiveAnswer) -> bool:
        return self.tools is not None and self.tools.permissions.is_allowed(tool, live.chat_id)

    def _run(self, live: LiveAnswer, call: StoredCall, tool: OfferedTool) -> None:
        assert self.tools is not None
        files = [
            Attached(name=one.name, path=one.path, text="" if one.path else one.text)
            for message in live.branch
            for one in message.attachments
            if one.kind == "text"
        ]
        live.set_call(msgspec.structs.replace(call, state="running"))
        job = live.tool_jobs[call.id] = self.tools.call(tool, call.arguments, files, live.settings.folders)

        def progressed(done: float, total: float | None, text: str) -> None:
            if live.tool_jobs.get(call.id) is job:
                share = words.share(min(done / total, 1.0)) if total else ""
                live.set_progress(call.id, " · ".join(filter(None, (share, text))))

        job.progressed.connect(progressed)
        job.ended.connect(lambda ended: self._on_call_ended(live, call.id, job, ended))

    def _on_call_ended(self, live: LiveAnswer, call_id: str, job: ToolJob, ended: CallEnded) -> None:
        call = live.call(call_id)
        if live.tool_jobs.get(call_id) is not job or call is None:
            return  # the answer is over
        del live.tool_jobs[call_id]
        call = msgspec.structs.replace(call, state=ended.state, result=ended.text, seconds=ended.seconds)

        def kept(images: list[Attachment], problems: list[str]) -> None:
            if live not in self.open:
                return
            text = "\n\n".join(filter(None, [call.result, *problems]))
            hashes = tuple(one.sha256 for one in images)
            live.attachments += [one for one in images if one not in live.attachments]
            live.set_call(msgspec.structs.replace(call, result=text, images=hashes))
            self._go_on_with_calls(live, lambda _: False)

        if ended.images:
            live.images_returned.emit(ended.images, kept)
        else:
            kept([], [])

    # ------------------------------------------------------------ servers

    @Slot()
    def _ask_for_consent(self) -> None:
        """Ask whether what waits may go to the server in use, where that is necessary."""
        needs = (
            one
            for one in self.open
            if one.is_stored and one.job is None and self.consent.is_needed(one.chat_id, one.branch)
        )
        self._unallowed = live = next(needs, None)
        if live is None:
            self._notice_list.remove(CONSENT)
        else:
            notice = notices.may_be_sent(title_for(live.branch[0]), self.consent.host())
            self._notice_list.show(CONSENT, notice)

    def send_chat(self) -> None:
        """The user allows that the chat in question goes to the server."""
        if self._unallowed is not None:
            self.consent.allow(self._unallowed.chat_id)
            self.go_on()

    def do_not_send(self) -> None:
        """The user doesn't allow it."""
        if self._unallowed is not None:
            self.stop(self._unallowed)

    # ------------------------------------------------------------ its turn

    def _submit(self, live: LiveAnswer) -> None:
        def ask() -> Generate | None:
            if self.consent.is_needed(live.chat_id, live.branch):  # another server is in use by now
                live.job = None
                self._ask_for_consent()
                return None
            pair, is_new = self._pair_loader.pair(), live.message is None
            self._notice_list.remove(SERVER)
            command = live.begin(self.resolve(live.settings, pair), pair, self.offered(live.settings))
            if is_new:
                self.begun.emit(live)
            return command

        live.job = job = Job(ask, Priority.CHAT)
        job.started.connect(live.on_started)
        job.prompt_progressed.connect(live.on_prompt_progressed)
        job.rounds_received.connect(partial(self._on_rounds_received, live))
        job.answered.connect(partial(self._on_finished, live))
        job.failed.connect(partial(self._on_failed, live))
        job.lost.connect(partial(self._on_lost, live))
        self.queue.submit(job)

    def _ask_again(self, live: LiveAnswer) -> None:
        """A continued answer has stopped calls: ask the user again, even if their tools are allowed."""
        pair = self._pair_loader.pair()
        live.prepare(self.resolve(live.settings, pair), pair, self.offered(live.settings))
        self.begun.emit(live)
        live.calls_changed.emit()
        self._go_on_with_calls(live, lambda _: False)

    def stop_thinking(self, live: LiveAnswer) -> None:
        """Have the model stop thinking and write this answer."""
        if live.job is not None:
            self.queue.stop_thinking(live.job)

    def _on_rounds_received(self, live: LiveAnswer, event: RoundsReceived) -> None:
        live.on_rounds_received(event)
        if live.repeats and live.job is not None:
            self.queue.cancel(live.job)

    def _on_finished(self, live: LiveAnswer, finished: GenerationFinished) -> None:
        if finished.draft_failure:
            pair = self._pair_loader.pair()
            head, both = pair_names.head_title(pair) if pair else "", len(pair.drafters) > 1 if pair else False
            notice = notices.draft_failed(finished.draft_failure, head=head, is_one_of_two=both)
            self._notice_list.show("drafting", notice)
        if live.takes_calls(finished):
            live.job = None
            self._go_on_with_calls(live, lambda tool: self._is_allowed(tool, live))
        else:
            self._end(live, lambda: live.on_finished(finished))

    def _on_failed(self, live: LiveAnswer, failed: GenerationFailed) -> None:
        remote = self._pair_loader.remote()
        is_explained = failed.cause in ("", "context", "refused")  # asking again wouldn't help
        if remote is not None and not is_explained:
            can_continue = remote.can_continue and bool(live.pieces)
            notice = notices.answer_not_finished(failed.cause, has_begun=bool(live.pieces), can_continue=can_continue)
            self.not_finished.emit(live, notice)
        can_go_on = bool(failed.cause and live.pieces) or bool(live.calls)
        status: Status = "interrupted" if can_go_on else "failed"
        extra = {"failure": failed.message} if failed.message else None
        self._end(live, lambda: live.end(status, None, failed.figures, extra))

    def _on_lost(self, live: LiveAnswer, what: Loss) -> None:
        if what == "engine":
            self._end(live, lambda: live.end("interrupted", extra={"failure": ENGINE_LOST}))
        elif what == "pair":
            self._end(live, lambda: live.end("stopped", "cancelled"))
        elif live.message is not None:
            self._end(live, lambda: live.end("failed", extra={"failure": BUG}))
        else:
            self.not_finished.emit(live, notices.plain_text(BUG))
            self._withdraw(live)
