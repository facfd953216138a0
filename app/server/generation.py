"""From the body of a request to its answer, whole or streamed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec

from app.protocol.commands import CountPrompt, Message
from app.protocol.events import (
    GenerationFinished,
    GenerationStarted,
    PairLoaded,
    Piece,
    PromptCounted,
    PromptProgressed,
    RoundsReceived,
    TextChecked,
)
from app.server.answers import Answer, Answers, ask_aside, loaded_pair
from app.server.anthropic import AnthropicReplies, prepare_message
from app.server.chat_request import EngineRequest, RequestImages, prepare_chat
from app.server.engines import AnswerPart, Engine
from app.server.fields import (
    ChatRequest,
    CompletionRequest,
    MessagesRequest,
    ResponsesRequest,
    Settings,
    Warnings,
    parsed,
    unread,
)
from app.server.guard import ApiError, invalid, not_supported
from app.server.http import Reply, StreamReply, json_reply
from app.server.replies import ChatReplies, CompletionReplies, Replies
from app.server.responses import ResponsesReplies, prepare_response
from app.server.settings import command_for, likely

Events = AsyncGenerator[AnswerPart | None, None]
Finished = Callable[[GenerationFinished, Warnings], None]


class Generation:
    """Answers requests with one engine."""

    def __init__(self, engine: Engine, answers: Answers, model: str, ping_seconds: float) -> None:
        """``model``: the model's id in replies."""
        self._engine = engine
        self._answers = answers
        self._model = model
        self._ping_seconds = ping_seconds

    async def answer(self, form: Form, body: bytes, finished: Finished) -> Reply | StreamReply:
        """Answer a request of this form; ``finished`` is called at the end. Raises `ApiError`."""
        pair = loaded_pair(self._engine)
        request = parsed(body, form.request)
        async with AsyncExitStack() as stack:
            images = stack.enter_context(RequestImages(pair))
            wanted = await self._whole(form.prepare(request, pair, images, unread(body)), images)
            make = partial(form.replies, request, wanted, pair, self._model)
            return await self._reply(wanted, make, finished, stack, stream=bool(request.stream))

    async def count(self, body: bytes) -> Reply:
        """``/v1/messages/count_tokens``. Raises `ApiError`."""
        pair = loaded_pair(self._engine)
        request = parsed(body, MessagesRequest)
        with RequestImages(pair) as images:
            command = (await self._whole(prepare_message(request, pair, images, Warnings()), images)).command
            question = CountPrompt(
                request=0,
                messages=command.messages,
                thinking=command.thinking,
                template_variables=command.template_variables,
                tools=command.tools,
            )
            found = await ask_aside(self._engine, question, PromptCounted)
        if found.refused:
            raise invalid(found.refused)
        return json_reply({"input_tokens": found.tokens + len(command.continued)})

    async def _whole(self, wanted: EngineRequest, images: RequestImages) -> EngineRequest:
        """Write the ``images``, and fill in the tokens of a continued answer. Raises `ApiError`."""
        await images.write()
        if wanted.continued is None:
            return wanted
        found = await ask_aside(self._engine, wanted.continued, TextChecked)
        if found.tokens is None:
            raise invalid("This answer can't be continued: the model has no tokens for exactly this text.")
        return replace(wanted, command=msgspec.structs.replace(wanted.command, continued=found.tokens))

    async def _reply(
        self,
        wanted: EngineRequest,
        make: Callable[[Answer], Replies],
        finished: Finished,
        stack: AsyncExitStack,
        *,
        stream: bool,
    ) -> Reply | StreamReply:
        """``stack`` is closed after the answer has been sent."""
        answer = await stack.enter_async_context(self._answers.begun(wanted.command, wanted.warnings))
        if not stream:
            return json_reply(await self._checked(wanted, answer, make, finished, stack))
        events = answer.events(self._ping_seconds)
        replies = make(answer)
        first = await anext(events)  # a refused request gets its own status instead
        return StreamReply(_parts(answer, first, events, replies, finished), stack.pop_all())

    async def _checked(
        self,
        wanted: EngineRequest,
        answer: Answer,
        make: Callable[[Answer], Replies],
        finished: Finished,
        stack: AsyncExitStack,
    ) -> dict[str, Any]:
        """The whole answer. If it doesn't match its schema, try once more, unless that would give the same answer."""
        pieces, last = await _whole(answer, finished)
        if last.valid is False and wanted.command.sampling.temperature > 0:
            again = msgspec.structs.replace(wanted.command, seed=(answer.seed or 0) + 1)
            with contextlib.suppress(ApiError):
                second = await stack.enter_async_context(self._answers.begun(again, wanted.warnings))
                pieces, last = await _whole(second, finished)
                answer = second
        return make(answer).whole(pieces, last)


async def _whole(answer: Answer, finished: Finished) -> tuple[list[Piece], GenerationFinished]:
    pieces: list[Piece] = []
    async for event in answer.events():
        if isinstance(event, RoundsReceived):
            pieces += (piece for round_ in event.rounds for piece in round_.pieces)
        elif isinstance(event, GenerationFinished):
            finished(event, answer.warnings)
            return pieces, event
    raise AssertionError("an answer always ends")


async def _parts(
    answer: Answer, first: AnswerPart | None, events: Events, replies: Replies, finished: Finished
) -> AsyncGenerator[bytes, None]:
    try:
        yield _part(first, replies)
        async for event in events:
            yield _part(event, replies)
            if isinstance(event, GenerationFinished):
                finished(event, answer.warnings)
        yield replies.end
    except ApiError as error:  # too late for a status
        yield replies.encoded(replies.failed(error))


def _part(event: AnswerPart | None, replies: Replies) -> bytes:
    return replies.ping if event is None else b"".join(map(replies.encoded, _json(event, replies)))


def _json(event: AnswerPart, replies: Replies) -> Iterator[dict[str, Any]]:
    match event:
        case GenerationStarted():
            return replies.begin()
        case PromptProgressed():
            return replies.progress(event)
        case RoundsReceived():
            return replies.rounds(event)
        case GenerationFinished():
            return replies.finish(event)


def _prepare_completion(
    request: CompletionRequest, pair: PairLoaded, _images: RequestImages, warnings: Warnings
) -> EngineRequest:
    """``/v1/completions``: the prompt without a chat template."""
    command = command_for(request, pair, [Message(role="user", content=_prompt(request, warnings))], warnings)
    wanted = request.logprobs  # here, ``true`` means 1, and 0 requests only the answer's own tokens
    logprobs = None if wanted is None or wanted is False else likely(wanted, warnings)
    return EngineRequest(msgspec.structs.replace(command, raw=True, logprobs=logprobs), warnings)


def _prompt(request: CompletionRequest, warnings: Warnings) -> str:
    if request.echo:
        raise not_supported("This server doesn't do echo.")
    if request.suffix:
        raise not_supported("This server doesn't do suffix: it only writes what follows a prompt.")
    if request.best_of not in (None, 1):
        warnings.add("This server gives one answer per request, whatever best_of is.")
    prompt = request.prompt
    if isinstance(prompt, list):
        if len(prompt) > 1 or not isinstance(prompt[0], str):
            raise not_supported("This server takes one prompt in a request, as text.")
        return prompt[0]
    return prompt


class Form(NamedTuple):
    """A dialect's requests and replies."""

    request: type[Settings]
    prepare: Callable[[Any, PairLoaded, RequestImages, Warnings], EngineRequest]
    """Raises `ApiError`."""
    replies: type[Replies]


_CHAT = Form(ChatRequest, prepare_chat, ChatReplies)
FORMS: Mapping[str, Form] = {
    "/v1/chat/completions": _CHAT,
    "/chat/completions": _CHAT,
    "/v1/completions": Form(CompletionRequest, _prepare_completion, CompletionReplies),
    "/v1/responses": Form(ResponsesRequest, prepare_response, ResponsesReplies),
    "/v1/messages": Form(MessagesRequest, prepare_message, AnthropicReplies),
}
"""By path."""
