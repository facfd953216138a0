"""One MCP server: starts it, lists what it offers, sends requests, and ends it; `ServerChanged` reports its state."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import mcp_types as mcp
import msgspec
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from app import __version__, system, words
from app.protocol.tools import MAX_TOOLS
from app.system import KnownError
from app.tools import transport
from app.tools.address import LOST, address
from app.tools.messages import (
    MAX_RESULT_IMAGES,
    MAX_RESULT_TEXT,
    CallEnded,
    CallProgressed,
    CallTool,
    FromTools,
    GetPrompt,
    PromptArgument,
    ReadResource,
    Reply,
    ResultImage,
    SecretChanged,
    ServerChanged,
    ServerPrompt,
    ServerResource,
    ServerTool,
    StartServer,
    UserAsked,
)

_PAGES, _MAX_LISTED = 100, 1000
"""The most pages of a list; the most prompts, and the most resources."""
_MAX_NAME, _MAX_NOTE, _MAX_DESCRIPTION, _MAX_SCHEMA, _MAX_QUESTION = 200, 2000, 10_000, 100_000, 100_000
_MAX_ARGUMENTS = 10
"""The most arguments that a prompt may have."""
_MAX_ROUNDS, _MAX_QUESTIONS = 10, 3
"""The most times that a server may ask before it answers; its most open questions."""
_PROGRESS_SECONDS, _CHANGE_SECONDS = 0.1, 1.0
"""The least time between two messages about the same thing."""
_LISTS_CHANGED = (
    mcp.ToolListChangedNotification, mcp.PromptListChangedNotification, mcp.ResourceListChangedNotification
)  # fmt: skip
_CLIENT = mcp.Implementation(name="Slipstream", version=__version__)

_Used = TypeVar("_Used")
Request = CallTool | GetPrompt | ReadResource
Ask = Callable[[UserAsked], "asyncio.Future[Reply]"]


class _Session(ClientSession):
    async def validate_tool_result(self, name: str, result: mcp.CallToolResult) -> None:
        """Does nothing: a regular expression in the server's schema could take forever, and the model reads text."""


class Server:
    """One server. `run` lasts until it is canceled or the server fails."""

    def __init__(self, start: StartServer, tell: Callable[[FromTools], None], ask: Ask) -> None:
        self._start = start
        self.entry = start.entry
        self._tell = tell
        self._ask = ask
        self._has_changed = asyncio.Event()
        self._log = transport.Log(self._has_changed.set)
        self._session: ClientSession | None = None
        self._offers: dict[str, Any] = {}
        """The fields of `ServerChanged` that say what it offers."""
        self._limits: dict[asyncio.Timeout, float] = {}
        """The time limits of open requests, with their seconds."""
        self._pauses = 0
        self._questions: set[asyncio.Future[Reply]] = set()
        self._lists_changed = False
        self._is_lost = False
        """It was restarted and no longer knows our session."""

    async def run(self) -> None:
        self._say("starting")
        try:
            await self._serve()
            while self._is_lost:
                await self._serve()
        except (Exception, BaseExceptionGroup) as error:
            self._say("failed", _reason(error))
        finally:
            self._session = None

    async def _serve(self) -> None:
        self._is_lost = False
        async with contextlib.AsyncExitStack() as stack:
            async with self._limit(2 * self.entry.timeout_seconds):  # npx or uvx may have to download it first
                streams = await stack.enter_async_context(
                    address(self._start, self) if self.entry.url else transport.command(self.entry, self._log)
                )
                session = _Session(
                    streams.read,
                    streams.write,
                    sampling_callback=self._on_sampling,
                    elicitation_callback=self._on_elicitation,
                    list_roots_callback=self._on_roots,
                    logging_callback=self._on_logging,
                    message_handler=self._on_message,
                    client_info=_CLIENT,
                )
                await stack.enter_async_context(session)
                try:
                    await session.initialize()  # first, because older servers exit if they are asked anything else
                except MCPError as error:
                    if error.code != mcp.UNSUPPORTED_PROTOCOL_VERSION:
                        raise
                    await session.discover()
                await self._list(session)
            self._session = session
            self._say("ready")
            while await self._has_changed.wait() and not self._is_lost:
                self._has_changed.clear()
                if self._lists_changed:
                    self._lists_changed = False
                    try:
                        async with asyncio.timeout(self.entry.timeout_seconds):
                            await self._list(session)
                    except (MCPError, ValidationError, TimeoutError) as error:
                        self._log.add(f"Its new lists couldn't be read: {_reason(error)}")
                self._say("ready")
                await asyncio.sleep(_CHANGE_SECONDS)

    def _say(self, state: Any, message: str = "") -> None:
        offers = self._offers if state == "ready" else {}
        log = list(self._log.lines)
        self._tell(ServerChanged(name=self.entry.name, state=state, message=message, log=log, **offers))

    # ------------------------------------------------------------ what it offers

    async def _list(self, session: ClientSession) -> None:
        can = session.server_capabilities or mcp.ServerCapabilities()
        tools = await _listed(session.list_tools, "tools", _tool) if can.tools else []
        prompts, resources = [], []
        try:
            prompts = await _listed(session.list_prompts, "prompts", _prompt) if can.prompts else []
            resources = await _listed(session.list_resources, "resources", _resource) if can.resources else []
        except MCPError as error:  # some servers say that they have them, but don't
            self._log.add(f"Its prompts or resources couldn't be read: {_reason(error)}")
        usable = {tool.name: tool for tool in reversed(tools) if tool is not None}
        kept = list(usable.values())[::-1][:MAX_TOOLS]
        about = session.server_info
        self._offers = {
            "tools": kept,
            "left_out": len(tools) - len(kept),
            "prompts": [one for one in prompts if one is not None][:_MAX_LISTED],
            "resources": [one for one in resources if one is not None][:_MAX_LISTED],
            "version": words.printable(f"{about.title or about.name} {about.version}", _MAX_NAME) if about else "",
        }

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, _LISTS_CHANGED):
            self._lists_changed = True
            self._has_changed.set()

    async def _on_logging(self, params: mcp.LoggingMessageNotificationParams) -> None:
        text = params.data if isinstance(params.data, str) else repr(params.data)[:_MAX_DESCRIPTION]
        self._log.add(f"{params.level}: {text}")

    # ------------------------------------------------------------ requests

    async def carry_out(self, request: Request) -> CallEnded:
        """Send a request; returns the answer, or what went wrong. Canceling this also cancels the request there."""
        begun = time.monotonic()
        text, images, is_error = "", list[ResultImage](), True
        try:
            if self._session is None:
                raise KnownError(f"The server “{self.entry.name}” isn't running.")
            async with self._limit(self.entry.timeout_seconds) as limit:
                text, images, is_error = await self._answer(self._session, request, limit)
        except (msgspec.MsgspecError, RecursionError) as error:
            text = f"The arguments can't be read: {error}."
        except TimeoutError:
            text = f"The server didn't answer within {words.duration(self.entry.timeout_seconds)}."
        except MCPError as error:
            has_ended = error.code == mcp.CONNECTION_CLOSED and not self.entry.url
            text = "The server ended before it answered." if has_ended else error.message[:_MAX_DESCRIPTION]
            if error.message == LOST:
                self._is_lost = True
                self._has_changed.set()
        except Exception as error:
            text = _reason(error)
        state: Literal["done", "failed"] = "failed" if is_error else "done"
        seconds = time.monotonic() - begun
        return CallEnded(request=request.request, state=state, text=text, images=images, seconds=seconds)

    async def _answer(
        self, session: ClientSession, request: Request, limit: asyncio.Timeout
    ) -> tuple[str, list[ResultImage], bool]:
        last = 0.0

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            nonlocal last
            self._begin_again([limit])
            now = time.monotonic()
            if now - last >= _PROGRESS_SECONDS:
                last = now
                text = words.printable(message or "", _MAX_NAME)
                self._tell(CallProgressed(request=request.request, done=progress, total=total, message=text))

        match request:
            case CallTool():
                arguments = system.decode(request.arguments or "{}", dict[str, Any])
                ask = partial(session.call_tool, request.tool, arguments, progress_callback=on_progress)
                result = await self._with_answers(session, ask)
                text, images = _shown(result.content)
                if not text and result.structured_content is not None:
                    text = _cut(msgspec.json.encode(result.structured_content).decode())
                return text, images, bool(result.is_error)
            case GetPrompt():
                prompt = await self._with_answers(session, partial(session.get_prompt, request.name, request.arguments))
                return *_shown(message.content for message in prompt.messages), False
            case ReadResource():
                resource = await self._with_answers(session, partial(session.read_resource, request.uri))
                return *_shown(resource.contents), False

    async def _with_answers(self, session: ClientSession, ask: Callable[..., Awaitable[Any]]) -> Any:
        """Since 2026-07-28, servers may ask a question in their answer; the request is sent again with our reply."""
        answers: dict[str, Any] | None = None
        state = None
        for _ in range(_MAX_ROUNDS):
            result = await ask(input_responses=answers, request_state=state, allow_input_required=True)
            if not isinstance(result, mcp.InputRequiredResult):
                return result
            answers, state = {}, result.request_state
            for key, question in (result.input_requests or {}).items():
                context = ClientRequestContext(session=session, request_id=key)
                answers[key] = await session.dispatch_input_request(context, question)
                if isinstance(answers[key], mcp.ErrorData):
                    raise MCPError.from_error_data(answers[key])
        raise KnownError("The server keeps asking questions instead of answering.")

    @contextlib.asynccontextmanager
    async def _limit(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """The time limit of a request. When the last request ends, open questions to the user are withdrawn."""
        async with asyncio.timeout(seconds) as limit:
            self._limits[limit] = seconds
            try:
                yield limit
            finally:
                del self._limits[limit]
                for question in self._questions if not self._limits else ():
                    if not question.done():
                        question.set_result(Reply(question=0, action="cancel"))

    def _begin_again(self, limits: Iterable[asyncio.Timeout]) -> None:
        """Restart the time limits: after progress, or when the user has answered. The clock stops until then."""
        for limit in limits:
            with contextlib.suppress(RuntimeError, KeyError):  # it is over
                limit.reschedule(None if self._pauses else asyncio.get_running_loop().time() + self._limits[limit])

    # ------------------------------------------------------------ questions of the server

    async def asked(self, kind: Any, message: str, *, url: str = "", fields: dict[str, Any] | None = None) -> Reply:
        """Ask the user, but only while a request of ours is open."""
        is_asked_for = self._limits and (self._session is not None or kind == "login")
        if not is_asked_for or len(self._questions) >= _MAX_QUESTIONS or len(str(fields)) > _MAX_SCHEMA:
            return Reply(question=0, action="decline")
        text = words.shortened(message, _MAX_QUESTION)
        name = self.entry.name
        question = self._ask(UserAsked(question=0, server=name, kind=kind, message=text, url=url, fields=fields or {}))
        self._questions.add(question)
        try:
            with self.paused():
                return await question
        finally:
            self._questions.discard(question)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock of all requests while the user is busy."""
        self._pauses += 1
        self._begin_again(self._limits)
        try:
            yield
        finally:
            self._pauses -= 1
            self._begin_again(self._limits)

    def on_secret(self, secret: str) -> None:
        self._tell(SecretChanged(server=self.entry.name, secret=secret))

    async def _on_elicitation(self, context: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:  # noqa: ARG002
        if isinstance(params, mcp.ElicitRequestURLParams):
            if not params.url.startswith(("https://", "http://")):
                return mcp.ElicitResult(action="decline")
            reply = await self.asked("login", params.message, url=params.url)
        else:
            reply = await self.asked("elicitation", params.message, fields=params.requested_schema)
        content = reply.content if reply.action == "accept" and reply.content else None
        return mcp.ElicitResult(action=reply.action, content=content)

    async def _on_sampling(
        self,
        context: Any,  # noqa: ARG002
        params: mcp.CreateMessageRequestParams,
    ) -> mcp.CreateMessageResult | mcp.ErrorData:
        texts = [f"System: {params.system_prompt}"] if params.system_prompt else []
        for message in params.messages:
            content = message.content if isinstance(message.content, list) else [message.content]
            texts.append(f"{message.role.capitalize()}: {_shown(content)[0]}")
        reply = await self.asked("sampling", "\n\n".join(texts))
        text = reply.content.get("text")
        if reply.action != "accept" or not isinstance(text, str):
            return mcp.ErrorData(code=-1, message="The user declined.")
        answer = mcp.TextContent(type="text", text=text)
        return mcp.CreateMessageResult(role="assistant", content=answer, model="Slipstream", stop_reason="endTurn")

    async def _on_roots(self, context: Any) -> mcp.ListRootsResult:  # noqa: ARG002
        folders = (Path(folder).absolute() for folder in self.entry.folders)
        return mcp.ListRootsResult(roots=[mcp.Root.model_validate({"uri": one.as_uri()}) for one in folders])


async def _listed(page_of: Callable[..., Awaitable[Any]], what: str, use: Callable[[Any], _Used]) -> list[_Used]:
    """A list from all its pages, up to a limit; texts that are too long are cut before the next page is read."""
    found: list[_Used] = []
    cursor = None
    for _ in range(_PAGES):
        page = await page_of(params=mcp.PaginatedRequestParams(cursor=cursor))
        found += map(use, getattr(page, what))
        cursor = page.next_cursor
        if cursor is None or len(found) > _MAX_LISTED:
            break
    return found


def _short(text: str | None, most: int = _MAX_NOTE) -> str:
    return words.shortened(text or "", most)


def _tool(tool: mcp.Tool) -> ServerTool | None:
    """``None`` if it can't be used."""
    size = _MAX_SCHEMA + 1
    with contextlib.suppress(ValueError, TypeError, RecursionError, OverflowError):
        size = len(msgspec.json.encode(tool.input_schema))
    if not 0 < len(tool.name) <= _MAX_NAME or size > _MAX_SCHEMA:
        return None
    hints = tool.annotations or mcp.ToolAnnotations()
    return ServerTool(
        name=tool.name,
        title=_short(tool.title or hints.title, _MAX_NAME),
        description=_short(tool.description, _MAX_DESCRIPTION),
        parameters=tool.input_schema,
        approach="read_only" if hints.read_only_hint else "destructive" if hints.destructive_hint else "",
    )


def _prompt(prompt: mcp.Prompt) -> ServerPrompt | None:
    arguments = [
        PromptArgument(name=one.name, description=_short(one.description), is_required=bool(one.required))
        for one in prompt.arguments or []
    ]
    if len(arguments) > _MAX_ARGUMENTS or max(map(len, [prompt.name, *(one.name for one in arguments)])) > _MAX_NAME:
        return None
    title, description = _short(prompt.title, _MAX_NAME), _short(prompt.description)
    return ServerPrompt(name=prompt.name, title=title, description=description, arguments=arguments)


def _resource(resource: mcp.Resource) -> ServerResource | None:
    if len(resource.uri) > _MAX_NOTE:
        return None
    return ServerResource(
        uri=resource.uri,
        name=_short(resource.title or resource.name, _MAX_NAME),
        description=_short(resource.description),
        media_type=_short(resource.mime_type, _MAX_NAME),
        size=min(max(resource.size or 0, 0), 1 << 53),
    )


def _shown(content: Iterable[Any]) -> tuple[str, list[ResultImage]]:
    """The text and the images of content blocks; the text says what can't be shown."""
    texts, images = list[str](), list[ResultImage]()
    for block in content:
        match block:
            case mcp.TextContent() | mcp.TextResourceContents():
                texts.append(block.text)
            case mcp.EmbeddedResource(resource=mcp.TextResourceContents() as resource):
                texts.append(f"[Resource {resource.uri}]\n{resource.text}")
            case (mcp.BlobResourceContents() as blob) | mcp.EmbeddedResource(
                resource=mcp.BlobResourceContents() as blob
            ):
                _add_image(blob.blob, blob.mime_type, f"Resource {blob.uri}", texts, images)
            case mcp.ImageContent():
                _add_image(block.data, block.mime_type, "Image", texts, images)
            case mcp.AudioContent():
                texts.append(f"[Audio, {block.mime_type}, not shown]")
            case mcp.ResourceLink():
                texts.append(f"[Link to the resource {block.uri}: {block.title or block.name}]")
            case _:
                texts.append(f"[{type(block).__name__}, not shown]")
    return _cut("\n".join(texts)), images


def _add_image(data: str, media_type: str | None, name: str, texts: list[str], images: list[ResultImage]) -> None:
    kind, content = words.printable(media_type or "of unknown type", _MAX_NAME), b""
    with contextlib.suppress(ValueError):
        content = base64.b64decode(data)
    if not content:
        texts.append(f"[{name}, {kind}, damaged]")
    elif not kind.startswith("image/"):
        texts.append(f"[{name}, {kind}, {words.size(len(content))}, not shown]")
    elif sum(len(image.data) for image in images) + len(content) > MAX_RESULT_IMAGES:
        texts.append(f"[{name}, {kind}, {words.size(len(content))}: left out, the result is too large]")
    else:
        images.append(ResultImage(media_type=kind, data=content))


def _cut(text: str) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_RESULT_TEXT:
        return text
    note = f"\n[The result was cut here. In full, it has {words.size(len(data))}.]"
    return data[: MAX_RESULT_TEXT - len(note)].decode("utf-8", "ignore") + note


def _reason(error: BaseException) -> str:
    """What went wrong, for the user."""
    while isinstance(error, BaseExceptionGroup):
        known = error.subgroup(KnownError)
        error = (known or error).exceptions[0]
    match error:
        case KnownError():
            return str(error)
        case TimeoutError():
            return "It didn't answer in time."
        case ValidationError():
            return f"Its answer doesn't follow the protocol: {words.printable(str(error.errors()[0]['msg']), 200)}."
        case MCPError():
            return words.printable(error.message, 500)
    return words.printable(f"{type(error).__name__}: {error}", 500)
