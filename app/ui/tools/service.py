"""The tools process as the window sees it: the user's servers, what they offer, and calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from PySide6.QtCore import QObject, Signal, Slot

from app import system
from app.chats.settings import ChatSettings
from app.client.connection import ExitCause, LogLines
from app.protocol.frames import FrameReader, ProtocolError, encode_frame
from app.settings import Settings
from app.system import KnownError
from app.tools.entries import ServerEntries, resolved, with_secrets_of
from app.tools.messages import (
    BUILT_IN,
    Attached,
    CallEnded,
    CallProgressed,
    CallTool,
    CancelCall,
    FromTools,
    GetPrompt,
    QuestionWithdrawn,
    ReadResource,
    Reply,
    SecretChanged,
    ServerChanged,
    ServerEntry,
    StartServer,
    StopServer,
    ToTools,
    UserAsked,
    decode_from_tools,
)
from app.tools.offered import BUILT_IN_TOOLS, MOST_OFFERED, OfferedTool, offered_tools
from app.tools.permissions import Permissions
from app.ui import notices
from app.ui.engine.client import ChildProcess
from app.ui.notices import NoticeList
from app.ui.widgets.tasks import Lane

_log = logging.getLogger("slipstream.tools")
_QUIT_MS = 5000
_PATIENCE_SECONDS = 5.0
NOTICE, _PROCESS_NOTICE = "tools", "tools process"
_ENDED = "The process that runs tools ended unexpectedly."
_CHANGED = "The tool has changed or was switched off since the call was written, so it did not run."
_NO_SERVER = "The server “{}” doesn't exist or is switched off."

Request = CallTool | GetPrompt | ReadResource


class ToolJob(QObject):
    """A tool call, or another request to a server.

    Attributes:
        request: Its number.
        tool: The tool that it calls, as it was when the call was written.

    Signals:
        progressed: How much is done, out of how much (``None``: unknown), and the server's message about it.
        ended: A `CallEnded`, exactly once; never before the method that made the job has returned.
    """

    progressed = Signal(float, object, str)
    ended = Signal(object)

    def __init__(self, request: int, parent: QObject, tool: OfferedTool | None) -> None:
        super().__init__(parent)
        self.request, self.tool = request, tool


class ToolService(QObject):
    """One per window. The process starts when the first server is on or a built-in tool is called. If it ends
    unexpectedly, it starts again when it is next needed.

    Attributes:
        servers: The latest state of each server.
        entries: The user's servers, by name.
        permissions: Which tools the user has allowed.
        is_offline: Whether servers at addresses can't be used.
        has_keyring: Whether the secrets of all servers will still be there next time.

    Signals:
        changed: A server, an entry or a permission has changed.
        asked: A `UserAsked`; `reply` answers it.
        withdrawn: The number of a question that no longer needs an answer.
    """

    changed = Signal()
    asked = Signal(object)
    withdrawn = Signal(int)

    def __init__(
        self,
        folder: Path | None,
        settings: Settings,
        notice_list: NoticeList,
        parent: QObject | None = None,
        *,
        command: Sequence[str] = (),
    ) -> None:
        """``folder`` contains the lists of servers and permissions; ``command`` starts the process."""
        super().__init__(parent)
        self.servers: dict[str, ServerChanged] = {}
        self.entries: dict[str, ServerEntry] = {}
        self.has_keyring = True
        self._lane = Lane(self, "tools")
        self._stored = ServerEntries(folder)
        self.permissions = Permissions(folder, self._write)
        self._settings = settings
        self.is_offline = settings.offline
        self._notice_list = notice_list
        self._command = list(command) or system.own_command("--role=tools")
        self._process = ChildProcess(self)
        self._process.output_received.connect(self._on_output)
        self._process.ended.connect(self._on_ended)
        self._reader: FrameReader | None = None
        """Of the running process."""
        self._lines = LogLines()
        self._last = 0
        self._jobs: dict[int, ToolJob] = {}
        self._waiting: dict[str, list[Request]] = {}
        """Requests, by the server that they are waiting for."""
        self._questions: set[int] = set()
        self._offered: list[OfferedTool] | None = None

    def begin(self) -> None:
        """Read the list of servers, and start those that are on."""
        self._lane.submit(self._stored.all, self._on_read, self._on_failed)

    def close(self) -> None:
        """Finish writing, then end the process and all servers for good."""
        self._lane.close(_PATIENCE_SECONDS, finish=True)
        self._reader = None
        self._process.close(_QUIT_MS)

    def process_id(self) -> int:
        """0 if the process isn't running."""
        return self._process.process_id()

    # ------------------------------------------------------------ what is offered

    def all_tools(self) -> list[OfferedTool]:
        """The tools of all servers that are ready, and the built-in ones, without those that are switched off."""
        if self._offered is None:
            tools = {BUILT_IN: list(BUILT_IN_TOOLS)} | {
                name: [tool for tool in self.servers[name].tools if tool.name not in entry.off]
                for name, entry in self.entries.items()
                if entry.is_on and name in self.servers and self.servers[name].state != "failed"
            }
            self._offered = offered_tools(tools, self.entries)
        return self._offered

    def offered(self, settings: ChatSettings) -> list[OfferedTool]:
        """The tools that are on in a chat with these settings, always in the same order."""
        chosen, own = settings.tools, self._settings.built_in_tools

        def is_on(tool: OfferedTool) -> bool:
            return tool.key in chosen if chosen is not None else tool.server != BUILT_IN or tool.tool.name in own

        return list(filter(is_on, self.all_tools()))[:MOST_OFFERED]

    # ------------------------------------------------------------ requests

    def call(
        self, tool: OfferedTool, arguments: str, attached: Sequence[Attached] = (), folders: Sequence[str] = ()
    ) -> ToolJob:
        """Call a tool. The user must have allowed it. The files and folders are for built-in tools."""
        files, places, name = list(attached), list(folders), tool.tool.name
        number = self._last + 1
        return self._request(
            CallTool(
                request=number, server=tool.server, tool=name, arguments=arguments, attached=files, folders=places
            ),
            tool,
        )

    def get_prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> ToolJob:
        return self._request(GetPrompt(request=self._last + 1, server=server, name=name, arguments=dict(arguments)))

    def read_resource(self, server: str, uri: str) -> ToolJob:
        return self._request(ReadResource(request=self._last + 1, server=server, uri=uri))

    def cancel(self, job: ToolJob) -> None:
        """Cancel a job; `ToolJob.ended` still follows."""
        if job.request not in self._jobs:
            return
        for waiting in self._waiting.values():
            if any(one.request == job.request for one in waiting):
                waiting[:] = [one for one in waiting if one.request != job.request]
                self._end_later(CallEnded(request=job.request, state="stopped"))
                return
        self._send(CancelCall(request=job.request))

    def reply(self, question: int, action: Literal["accept", "decline", "cancel"], **content: object) -> None:
        """The user's answer to `asked`; does nothing if it is no longer needed."""
        if question in self._questions:
            self._questions.remove(question)
            self._send(Reply(question=question, action=action, content=content))

    def _request(self, request: Request, tool: OfferedTool | None = None) -> ToolJob:
        self._last = request.request
        job = self._jobs[request.request] = ToolJob(request.request, self, tool)
        name = request.server
        entry = self.entries.get(name)
        if name != BUILT_IN and (entry is None or not entry.is_on):
            self._end_later(CallEnded(request=job.request, state="failed", text=_NO_SERVER.format(name)))
            return job
        self._run()
        if name == BUILT_IN or self.servers[name].state == "ready":
            self._send_request(request)
        else:
            self._waiting.setdefault(name, []).append(request)
            if self.servers[name].state != "starting":
                self.start(name)
        return job

    def _send_request(self, request: Request) -> None:
        tool = self._jobs[request.request].tool
        if tool is not None and tool.fingerprint not in (one.fingerprint for one in self.all_tools()):
            self._end_later(CallEnded(request=request.request, state="failed", text=_CHANGED))
            return
        try:
            self._send(request)
        except ProtocolError:
            text = "The request is too large."
            self._end_later(CallEnded(request=request.request, state="failed", text=text))

    def _end_later(self, ended: CallEnded) -> None:
        self._lane.post(lambda: self._end_job(ended))

    def _end_job(self, ended: CallEnded) -> None:
        if (job := self._jobs.pop(ended.request, None)) is not None:
            job.ended.emit(ended)
            job.deleteLater()

    # ------------------------------------------------------------ servers

    def put(self, entry: ServerEntry, instead_of: str = "") -> None:
        """Add a server, or change the one with this name, and start it if it is on. The user has seen what it runs."""
        before = self.entries.get(instead_of or entry.name)
        if before is not None:
            entry = with_secrets_of(entry, before)
            if before.name != entry.name:
                self._drop(before.name)
        self.entries[entry.name] = entry
        if not entry.is_on:
            self._stop(entry.name)
            self._changed(ServerChanged(name=entry.name, state="stopped"))
        elif before is None or before != msgspec.structs.replace(entry, off=before.off):
            self.start(entry.name)
        else:
            self._changed(self.servers[entry.name])

        def stored(lasts: bool) -> None:
            self.has_keyring = self.has_keyring and lasts
            self.changed.emit()

        self._lane.submit(lambda: self._stored.put(entry, instead_of), stored, self._on_failed)

    def remove(self, name: str) -> None:
        """Stop this server and remove it, its secrets, and the permissions for its tools."""
        self._drop(name)
        for key, allowed in self.permissions.all().items():
            if allowed.server == name:
                self.permissions.withdraw(key)
        self._lane.submit(lambda: self._stored.remove(name), None, self._on_failed)
        self.changed.emit()

    def start(self, name: str) -> None:
        """Start or restart a server."""
        self._run()
        entry, is_offline = self.entries[name], self._settings.offline
        known = self.servers.get(name)
        self._changed(ServerChanged(name=name, state="starting", tools=known.tools if known else []))

        def prepare() -> StartServer:
            return StartServer(entry=resolved(entry), secret=self._stored.login(name), is_offline=is_offline)

        def prepared(message: StartServer) -> None:
            if self.entries.get(name) == entry and entry.is_on:
                self._send(message)

        self._lane.submit(prepare, prepared, lambda error: self._on_server_failed(name, str(error)))

    @Slot()
    def apply_settings(self) -> None:
        """Other built-in tools may be offered. Servers at addresses start again when working offline begins or ends."""
        if self.is_offline != self._settings.offline:
            self.is_offline = self._settings.offline
            for name, entry in self.entries.items():
                if entry.is_on and entry.url:
                    self.start(name)
        self.changed.emit()

    def _stop(self, name: str) -> None:
        self._send(StopServer(name=name))
        self._release(name, _NO_SERVER.format(name))
        self._notice_list.remove(f"{NOTICE} {name}")

    def _drop(self, name: str) -> None:
        self._stop(name)
        self.entries.pop(name, None)
        self.servers.pop(name, None)
        self._offered = None

    def _on_read(self, entries: dict[str, ServerEntry]) -> None:
        self.entries = {**entries, **self.entries}
        for name in entries.keys() - self.servers.keys():
            if entries[name].is_on:
                self.start(name)
            else:
                self.servers[name] = ServerChanged(name=name, state="stopped")
        self._offered = None
        self.changed.emit()

    def _write(self, change: Callable[[], None]) -> None:
        """Write a change to the permissions."""
        self._lane.submit(change, None, self._on_failed)
        self.changed.emit()

    def _on_failed(self, error: KnownError) -> None:
        self._notice_list.show(NOTICE, notices.plain_text(str(error)))
        self.changed.emit()

    # ------------------------------------------------------------ the process

    def _run(self) -> None:
        if self._reader is None:
            self._reader, self._lines = FrameReader(), LogLines()
            self._notice_list.remove(_PROCESS_NOTICE)
            self._process.start(self._command, self._lines)

    def _send(self, message: ToTools) -> None:
        """Does nothing without a process. Raises `ProtocolError` if the message is too large."""
        self._process.write(encode_frame(message))

    @Slot(object)
    def _on_output(self, data: bytes) -> None:
        if (reader := self._reader) is None:
            return
        try:
            for body in reader.feed(data):
                self._on_message(decode_from_tools(body))
        except ProtocolError as error:
            _log.error("protocol violation: %s", error)
            self._process.kill()

    def _on_message(self, message: FromTools) -> None:
        match message:
            case ServerChanged():
                if (entry := self.entries.get(message.name)) is not None and entry.is_on:
                    self._on_server_changed(message)
            case CallProgressed():
                if (job := self._jobs.get(message.request)) is not None:
                    job.progressed.emit(message.done, message.total, message.message)
            case CallEnded():
                self._end_job(message)
            case UserAsked():
                self._questions.add(message.question)
                self.asked.emit(message)
            case QuestionWithdrawn():
                self._questions.discard(message.question)
                self.withdrawn.emit(message.question)
            case SecretChanged():
                name, secret = message.server, message.secret
                if name in self.entries:
                    self._lane.submit(lambda: self._stored.keep_login(name, secret), None, self._on_failed)

    def _on_server_changed(self, message: ServerChanged) -> None:
        name = message.name
        subject = f"{NOTICE} {name}"
        if message.state == "failed":
            text = f"The MCP server “{name}” isn't available. {message.message}"
            self._notice_list.show(subject, notices.tools_failed(text, message.log))
        elif message.state == "ready":
            self._notice_list.remove(subject)
        self._changed(message)
        if message.state == "ready":
            for request in self._waiting.pop(name, []):
                self._send_request(request)
        elif message.state != "starting":
            self._release(name, message.message or f"The server “{name}” has stopped.")

    def _on_server_failed(self, name: str, text: str) -> None:
        """The server failed before it was started."""
        if name in self.entries:
            self._on_server_changed(ServerChanged(name=name, state="failed", message=text))

    def _changed(self, server: ServerChanged) -> None:
        self.servers[server.name] = server
        self._offered = None
        self.changed.emit()

    def _release(self, name: str, text: str) -> None:
        """Fail all requests that are waiting for this server; ``text`` says why."""
        for request in self._waiting.pop(name, []):
            self._end_later(CallEnded(request=request.request, state="failed", text=text))

    @Slot(object, str)
    def _on_ended(self, cause: ExitCause, detail: str) -> None:
        _log.warning("the tools process ended: %s (%s)", cause.value, detail)
        self._reader = None
        self._waiting.clear()
        text = f"The process that runs tools ended unexpectedly ({detail}). It starts again when a tool is used."
        self._notice_list.show(_PROCESS_NOTICE, notices.tools_failed(text, self._lines.last()))
        for request in self._jobs:
            self._end_later(CallEnded(request=request, state="failed", text=_ENDED))
        for question in list(self._questions):
            self._on_message(QuestionWithdrawn(question=question))
        for name, server in self.servers.items():
            if self.entries[name].is_on and server.state != "failed":
                # Its tools are still offered: calling one starts it again.
                self.servers[name] = msgspec.structs.replace(server, state="stopped", message=_ENDED)
        self.changed.emit()
