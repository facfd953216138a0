"""Requests for answers: from the body of a request to its answer, whole or streamed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec

from app.errors import KnownError
from app.protocol.commands import CountPrompt, Generate, Message
from app.protocol.events import (
    GenerationFinished,
    GenerationStarted,
    PairLoaded,
    Piece,
    PromptProgressed,
    RoundsReceived,
)
from app.server.answers import Answer, Answers, unavailable
from app.server.anthropic_replies import AnthropicReplies
from app.server.anthropic_request import asked_by_messages
from app.server.chat_request import Asked, asked
from app.server.engine import AnswerEvent, Engine
from app.server.errors import ApiError, invalid, not_supported
from app.server.fields import ChatRequest, CompletionRequest, MessagesRequest, ResponsesRequest, parsed
from app.server.http import Reply, StreamReply, json_reply
from app.server.images import RequestImages
from app.server.replies import ChatDialect, CompletionDialect, OpenAIReplies, Replies
from app.server.responses_replies import ResponsesReplies
from app.server.responses_request import asked_by_responses
from app.server.said import Reader
from app.server.settings import command_for

Events = AsyncGenerator[AnswerEvent | None, None]
Finished = Callable[[GenerationFinished], None]


class Generation:
    """Answers with one engine."""

    def __init__(self, engine: Engine, answers: Answers, ping_seconds: float) -> None:
        self._engine = engine
        self._answers = answers
        self._ping_seconds = ping_seconds

    async def chat(self, body: bytes, model: str, finished: Finished) -> Reply | StreamReply:
        """``/v1/chat/completions``; ``finished`` is told of the end. Raises `ApiError`."""
        pair = loaded_pair(self._engine)
        request = parsed(body, ChatRequest)
        async with AsyncExitStack() as stack:
            images = stack.enter_context(RequestImages(pair))
            command = await self._whole_command(asked(request, pair, images), images)
            reader = Reader(pair, command.tools, logprobs=command.logprobs is not None)
            dialect = ChatDialect(logprobs=command.logprobs is not None)
            make = partial(OpenAIReplies, dialect, reader, request, pair, model)
            return await self._reply(command, make, finished, stack, stream=bool(request.stream))

    async def messages(self, body: bytes, model: str, finished: Finished) -> Reply | StreamReply:
        """``/v1/messages``. Raises `ApiError`."""
        pair = loaded_pair(self._engine)
        request = parsed(body, MessagesRequest)
        async with AsyncExitStack() as stack:
            images = stack.enter_context(RequestImages(pair))
            command = await self._whole_command(asked_by_messages(request, pair, images), images)
            make = partial(AnthropicReplies, Reader(pair, command.tools), pair, model)
            return await self._reply(command, make, finished, stack, stream=bool(request.stream))

    async def responses(self, body: bytes, model: str, finished: Finished) -> Reply | StreamReply:
        """``/v1/responses``. Raises `ApiError`."""
        pair = loaded_pair(self._engine)
        request = parsed(body, ResponsesRequest)
        async with AsyncExitStack() as stack:
            images = stack.enter_context(RequestImages(pair))
            command = await self._whole_command(asked_by_responses(request, pair, images), images)
            make = partial(ResponsesReplies, Reader(pair, command.tools), request, pair, model)
            return await self._reply(command, make, finished, stack, stream=bool(request.stream))

    async def count(self, body: bytes) -> Reply:
        """``/v1/messages/count_tokens``. Raises `ApiError`."""
        pair = loaded_pair(self._engine)
        request = parsed(body, MessagesRequest)
        with RequestImages(pair) as images:
            command = await self._whole_command(asked_by_messages(request, pair, images), images)
            question = CountPrompt(
                request=0,
                messages=command.messages,
                thinking=command.thinking,
                template_variables=command.template_variables,
                tools=command.tools,
            )
            try:
                found = await self._engine.count_prompt(question)
            except KnownError:
                raise unavailable() from None
        if found.refused:
            raise invalid(found.refused)
        return json_reply({"input_tokens": found.tokens + len(command.continued)})

    async def completion(self, body: bytes, model: str, finished: Finished) -> Reply | StreamReply:
        """``/v1/completions``: the prompt as it is. Raises `ApiError`."""
        pair = loaded_pair(self._engine)
        request = parsed(body, CompletionRequest)
        prompt = _prompt(request)
        command = command_for(request, pair, [Message(role="user", content=prompt)])
        command = msgspec.structs.replace(command, raw=True, logprobs=_logprobs(request))
        has_logprobs = command.logprobs is not None
        reader, dialect = Reader(pair, logprobs=has_logprobs), CompletionDialect(logprobs=has_logprobs)
        make = partial(OpenAIReplies, dialect, reader, request, pair, model)
        async with AsyncExitStack() as stack:
            return await self._reply(command, make, finished, stack, stream=bool(request.stream))

    async def _whole_command(self, wanted: Asked, images: RequestImages) -> Generate:
        """With the tokens of an answer that has begun, and its ``images`` in files. Raises `ApiError`."""
        await images.write()
        if wanted.continued is None:
            return wanted.command
        try:
            found = await self._engine.check_text(wanted.continued)
        except KnownError:
            raise unavailable() from None
        if found.tokens is None:
            raise invalid("This answer can't be continued: the model has no tokens for exactly this text.")
        return msgspec.structs.replace(wanted.command, continued=found.tokens)

    async def _reply(
        self,
        command: Generate,
        make: Callable[[Answer], Replies],
        finished: Finished,
        stack: AsyncExitStack,
        *,
        stream: bool,
    ) -> Reply | StreamReply:
        """What is in ``stack`` is kept until the answer has been sent."""
        answer = await stack.enter_async_context(self._answers.begun(command))
        replies = make(answer)
        if not stream:
            return json_reply(await _whole(answer, replies, finished))
        events = answer.events(self._ping_seconds)
        first = await anext(events)  # a request that is refused gets a status of its own
        return StreamReply(_parts(first, events, replies, finished), stack.pop_all())


def loaded_pair(engine: Engine) -> PairLoaded:
    """What is loaded. Raises `ApiError`."""
    if engine.pair is None:
        raise unavailable()
    return engine.pair


async def _whole(answer: Answer, replies: Replies, finished: Finished) -> dict[str, Any]:
    pieces: list[Piece] = []
    async for event in answer.events():
        if isinstance(event, RoundsReceived):
            pieces += (piece for round_ in event.rounds for piece in round_.pieces)
        elif isinstance(event, GenerationFinished):
            finished(event)
            return replies.whole(pieces, event)
    raise AssertionError("an answer always ends")


async def _parts(
    first: AnswerEvent | None, events: Events, replies: Replies, finished: Finished
) -> AsyncGenerator[bytes, None]:
    try:
        yield _part(first, replies)
        async for event in events:
            yield _part(event, replies)
            if isinstance(event, GenerationFinished):
                finished(event)
        yield replies.end
    except ApiError as error:  # the status has been sent
        yield replies.encoded(replies.failed(error))


def _part(event: AnswerEvent | None, replies: Replies) -> bytes:
    return replies.ping if event is None else b"".join(map(replies.encoded, _json(event, replies)))


def _json(event: AnswerEvent, replies: Replies) -> Iterator[dict[str, Any]]:
    match event:
        case GenerationStarted():
            return replies.begin()
        case PromptProgressed():
            return replies.progress(event)
        case RoundsReceived():
            return replies.rounds(event)
        case GenerationFinished():
            return replies.finish(event)


def _logprobs(request: CompletionRequest) -> int | None:
    """Here ``true`` means what 1 does, and 0 asks for the tokens of the answer alone."""
    wanted = request.logprobs
    return None if wanted is None or wanted is False else int(wanted)


def _prompt(request: CompletionRequest) -> str:
    if request.echo:
        raise not_supported("This server doesn't do echo.")
    if request.suffix:
        raise not_supported("This server doesn't do suffix: it only writes what follows a prompt.")
    if request.best_of not in (None, 1):
        raise invalid("This server writes one answer to a request, so best_of has to be 1.")
    prompt = request.prompt
    if isinstance(prompt, list):
        if len(prompt) > 1 or not isinstance(prompt[0], str):
            raise not_supported("This server takes one prompt in a request, as text.")
        return prompt[0]
    return prompt
