"""Requests in each server's dialect.

They only contain fields that the server supports, and only the sampling that was chosen; for the rest, the server's
own values apply.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.protocol.commands import CountTokens, Generate, Image, Message
from app.protocol.events import TokensCounted
from app.protocol.images import HEAD_BYTES, MOST_BYTES, read_head
from app.protocol.options import AnswerFormat
from app.protocol.tools import ToolUse, definition
from app.remote.connecting import Session
from app.remote.http import RemoteError, mapping, number, parsed, refusal

_MIME = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "bmp": "image/bmp", "webp": "image/webp"}


def request_for(command: Generate, session: Session, seed: int) -> tuple[str, dict[str, Any]]:
    """The path and body of a request for an answer. Raises `RemoteError` if the server doesn't support it."""
    _check(command, session)
    if session.dialect.kind == "ollama":
        return _ollama(command, session, seed)
    dialect = session.dialect
    body: dict[str, Any] = {"model": session.model, "stream": True, "stream_options": dialect.stream_options}
    if command.raw:
        path, body["prompt"] = "/v1/completions", "".join(message.content for message in command.messages)
    else:
        path = "/api/v0/chat/completions" if session.has_stats else "/v1/chat/completions"
        body["messages"] = [_message(message, session) for message in command.messages]
        body |= _thinking(command, session) | _continuing(command, session) | _tools(command.tools)
    body |= _sampling(command, session) | dialect.extras | _format(command.format)
    body["seed"] = seed
    if command.max_tokens is not None:
        body["max_tokens"] = command.max_tokens
    if command.stop:
        body["stop"] = command.stop
    return path, body


def is_without_draft(command: Generate) -> bool:
    """Whether drafting is to be turned off."""
    return command.draft_length == 0 or command.drafter == "none"


def _check(command: Generate, session: Session) -> None:
    remote, name = session.remote, session.dialect.name
    if command.format is not None and command.format.kind not in remote.formats:
        raise RemoteError(
            "refused", f"{name} can't give answers in this format. Choose another in the chat's settings."
        )
    if command.continue_last and not remote.can_continue:
        raise RemoteError("refused", f"{name} can't continue an answer. Ask for a new one instead.")
    if command.continued:
        raise RemoteError("refused", "This answer was begun by another engine, and can't be continued here.")
    if command.raw and session.dialect.kind in ("ollama", "tgi"):
        raise RemoteError("refused", f"{name} can't be sent a prompt without its chat template.")
    if "images" in remote.refused and any(message.images for message in command.messages):
        raise RemoteError(
            "refused", f"{remote.refused['images']} Remove the images from this chat, or use another model."
        )


def _sampling(command: Generate, session: Session) -> dict[str, Any]:
    names = {name: theirs for name, theirs in session.dialect.sampling.items() if name not in session.remote.refused}
    chosen = names if command.chosen is None else command.chosen
    found = {names[name]: getattr(command.sampling, name) for name in chosen if name in names}
    if found.get("top_k") == 0:
        found["top_k"] = session.dialect.all_top_k
    if session.dialect.kind == "tgi" and found.get("top_p") == 1.0:
        del found["top_p"]  # TGI refuses 1
    return found


def _thinking(command: Generate, session: Session) -> dict[str, Any]:
    level, found = command.thinking, dict[str, Any]()
    kwargs: dict[str, Any] = dict(command.template_variables)
    if level in ("off", "on") and level in session.pair.thinking:
        kwargs["enable_thinking"] = level == "on"
    elif level and level in session.pair.thinking:
        found["reasoning_effort"] = level
    if kwargs:
        found["chat_template_kwargs"] = kwargs
    limits = ((theirs, getattr(command, name)) for name, theirs in session.dialect.limits.items())
    return found | {name: limit for name, limit in limits if limit is not None}


def _continuing(command: Generate, session: Session) -> dict[str, Any]:
    if not command.continue_last:
        return {}
    last = command.messages[-1] if command.messages else None
    if last is None or last.role != "assistant":
        raise RemoteError("refused", "Only an answer can be continued.")
    thinks = bool(last.thinking) and not last.content
    if thinks and session.dialect.kind not in ("llama.cpp", "slipstream"):
        raise RemoteError("refused", f"{session.dialect.name} can't continue an answer's thinking. Ask for a new one.")
    return {"continue_final_message": "reasoning_content" if thinks else True, "add_generation_prompt": False}


def _format(wanted: AnswerFormat | None) -> dict[str, Any]:
    if wanted is None:
        return {}
    if wanted.kind == "gbnf":
        return {"grammar": wanted.source}
    if wanted.kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    schema = {"name": "answer", "schema": schema_of(wanted)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def schema_of(wanted: AnswerFormat) -> object:
    """A schema as JSON. Raises `RemoteError`."""
    schema = parsed(wanted.source)
    if not isinstance(schema, dict | bool):
        raise RemoteError("refused", "The schema in the chat's settings isn't valid JSON.")
    return schema


def _tools(use: ToolUse | None) -> dict[str, Any]:
    if use is None or use.none:
        return {}
    found: dict[str, Any] = {"tools": list(map(definition, use.tools))}
    if use.only:
        found["tool_choice"] = {"type": "function", "function": {"name": use.only}}
    elif use.required:
        found["tool_choice"] = "required"
    return found if use.several else {**found, "parallel_tool_calls": False}


def _said(message: Message, session: Session) -> dict[str, Any]:
    """A message without its images and thinking."""
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        found["tool_call_id"] = message.tool_call_id
        if message.tool_name and session.dialect.kind in ("llama.cpp", "slipstream", "vllm", "sglang"):
            found["name"] = message.tool_name  # for templates that write it
    if message.tool_calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return found


def _message(message: Message, session: Session) -> dict[str, Any]:
    found = _said(message, session)
    if message.images:
        shown = [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in message.images]
        found["content"] = [*shown, {"type": "text", "text": message.content}]
    if message.thinking and session.dialect.kind in ("llama.cpp", "slipstream", "sglang"):
        found["reasoning_content"] = message.thinking
    elif message.thinking and session.dialect.kind == "vllm":
        found["reasoning"] = message.thinking
    return found


def data_url(image: Image) -> str:
    """An image as a ``data:`` URL. Raises `RemoteError`."""
    content, kind = _image(image)
    return f"data:{_MIME[kind]};base64,{content}"


def _image(image: Image) -> tuple[str, str]:
    """An image as base64, and its kind."""
    try:
        with Path(image.path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError:
        raise RemoteError("refused", "An image of this chat is missing or can't be read.") from None
    head = read_head(data[:HEAD_BYTES])
    if head is None or len(data) > MOST_BYTES:
        raise RemoteError("refused", "An image of this chat is damaged or too large to be sent.")
    return binascii.b2a_base64(data, newline=False).decode("ascii"), head.kind


# ------------------------------------------------------------ Ollama's own API


def _ollama(command: Generate, session: Session, seed: int) -> tuple[str, dict[str, Any]]:
    """A request to Ollama's own API, which supports and reports more than its ``/v1``."""
    options = {**_sampling(command, session), "seed": seed}
    if command.max_tokens is not None:
        options["num_predict"] = command.max_tokens
    if command.stop:
        options["stop"] = command.stop
    if is_without_draft(command):
        options["draft_num_predict"] = 0
    body: dict[str, Any] = {
        "model": session.model,
        "messages": _ollama_messages(command.messages),
        "stream": True,
        "options": options,
        **_tools(command.tools),
    }
    if command.thinking in ("off", "on"):
        body["think"] = command.thinking == "on"
    elif command.thinking:
        body["think"] = command.thinking
    if command.format is not None:
        body["format"] = "json" if command.format.kind == "json_object" else schema_of(command.format)
    return "/api/chat", body


def _ollama_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    found = []
    for message in messages:
        entry: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.thinking:
            entry["thinking"] = message.thinking
        if message.role == "tool":
            entry["tool_name"] = message.tool_name
        calls = ({"name": call.name, "arguments": parsed(call.arguments)} for call in message.tool_calls)
        if message.tool_calls:
            entry["tool_calls"] = [{"function": call} for call in calls]
        if message.images:
            entry["images"] = [_image(image)[0] for image in message.images]
        found.append(entry)
    return found


_SECONDS = 30.0
_PLACES = {"llama.cpp": ("/v1/chat/completions/input_tokens", "input_tokens"), "vllm": ("/tokenize", "count")}


async def count(question: CountTokens, session: Session) -> TokensCounted:
    """Count tokens with the server. Raises `RemoteError` if it fails."""
    system = [message for message in question.messages[:1] if message.role == "system"]
    typed = [Message(role="user", content=question.text)] if question.text else []
    all_tokens = await _tokens([*question.messages, *typed], session)
    before = await _tokens(question.messages, session) if typed and len(question.messages) > len(system) else 0
    system_tokens = await _tokens(system, session) if system and len(question.messages) > 1 else 0
    if not typed:
        before = all_tokens
    with_tools = await _tokens([*question.messages, *typed], session, question.tools) if question.tools else 0
    return TokensCounted(
        request=question.request,
        system=min(system_tokens, all_tokens),
        messages=max(before - system_tokens, 0),
        text=max(all_tokens - max(before, system_tokens), 0),
        context_length=session.pair.context_length,
        tools=max(with_tools - all_tokens, 0),
    )


async def _tokens(messages: list[Message], session: Session, tools: ToolUse | None = None) -> int:
    """The length of a prompt made of these messages; 0 without any, because a template may need one."""
    if not messages:
        return 0
    path, name = _PLACES[session.dialect.kind]
    body = {"model": session.model, "messages": [_said(message, session) for message in messages], **_tools(tools)}
    answer = await session.http.post(path, body, _SECONDS)
    if answer.status != 200:
        raise refusal(answer.status, answer.body, session.http.address.host)
    tokens = number(mapping(answer.json).get(name))
    if tokens is None:
        raise RemoteError("not_a_server", "The server didn't say how many tokens there are.")
    return tokens
