"""How many tokens a chat has, where a server counts them."""

from __future__ import annotations

from app.protocol.commands import CountTokens, Message
from app.protocol.events import TokensCounted
from app.remote.connecting import Session
from app.remote.failures import RemoteError, refusal
from app.remote.values import mapping, number

_SECONDS = 30.0
_PLACES = {
    "llama.cpp": ("/v1/chat/completions/input_tokens", "input_tokens"),
    "vllm": ("/tokenize", "count"),
}


async def count(question: CountTokens, session: Session) -> TokensCounted:
    """The answer to a question. Raises `RemoteError` where the server can't count."""
    system = [message for message in question.messages[:1] if message.role == "system"]
    typed = [Message(role="user", content=question.text)] if question.text else []
    all_tokens = await _tokens([*question.messages, *typed], session)
    before = await _tokens(question.messages, session) if typed and len(question.messages) > len(system) else 0
    system_tokens = await _tokens(system, session) if system and len(question.messages) > 1 else 0
    if not typed:
        before = all_tokens
    return TokensCounted(
        request=question.request,
        system=min(system_tokens, all_tokens),
        messages=max(before - system_tokens, 0),
        text=max(all_tokens - max(before, system_tokens), 0),
        context_length=session.pair.context_length,
    )


async def _tokens(messages: list[Message], session: Session) -> int:
    """The tokens of a prompt made of messages; a template may need a question, so that 0 is an answer, too."""
    if not messages:
        return 0
    path, name = _PLACES[session.dialect.kind]
    body = {
        "model": session.model,
        "messages": [{"role": message.role, "content": message.content} for message in messages],
    }
    answer = await session.http.post(path, body, _SECONDS)
    if answer.status != 200:
        raise refusal(answer.status, answer.body, session.http.address.host)
    tokens = number(mapping(answer.json).get(name))
    if tokens is None:
        raise RemoteError("not_a_server", "The server didn't say how many tokens there are.")
    return tokens
