"""``/v1/messages``, Anthropic's form: a request as what an engine is asked."""

from __future__ import annotations

from typing import Any

import msgspec

from app.protocol.events import PairLoaded
from app.server.chat_request import Asked, budget, continuing
from app.server.fields import AnthropicMessage, MessagesRequest
from app.server.history import ROLES, History
from app.server.images import RequestImages
from app.server.settings import command_for
from app.server.tool_request import check_together, tool_use
from app.server.warnings import Warnings

_CALL, _RESULT = "tool_use", "tool_result"


def asked_by_messages(
    request: MessagesRequest, pair: PairLoaded, images: RequestImages, warnings: Warnings | None = None
) -> Asked:
    """What to ask the engine. Raises `ApiError`.

    Without ``thinking`` the model isn't to think, as at Anthropic's: clients take the first block for the answer.
    """
    warnings = warnings or Warnings()
    choice = request.tool_choice
    several = not (isinstance(choice, dict) and choice.get("disable_parallel_tool_use"))
    use = tool_use(request.tools or [], choice, warnings, several=several, custom=True)
    request.response_format = (request.output_config and request.output_config.format) or request.output_format
    check_together(request, use, pair)
    history = History(images, warnings)
    if request.system:
        history.add("system", request.system)
    for message in request.messages:
        _add(history, message)
    thinking = request.thinking
    level = "on" if thinking and thinking.type != "disabled" else "off"
    command = msgspec.structs.replace(
        command_for(request, pair, history.whole(), warnings, pair.usable_thinking(level)),
        stop=list(filter(None, request.stop_sequences or [])),
        thinking_budget=budget(thinking.budget_tokens or None) if thinking else None,
        tools=use,
    )
    return continuing(command, warnings)


def _add(history: History, message: AnthropicMessage) -> None:
    """The messages that one of Anthropic's is made of: the results of calls are messages of their own."""
    blocks: list[Any] = message.content if isinstance(message.content, list) else [message.content or ""]
    said = [block for block in blocks if _kind(block) != _RESULT]
    for block in blocks:
        if _kind(block) == _RESULT:
            history.result(block.get("tool_use_id"), block.get("content"))
    if ROLES.get(message.role) == "assistant":
        calls = [block for block in said if _kind(block) == _CALL]
        said = [block for block in said if _kind(block) != _CALL]
        history.answer(said, calls=[(one.get("id"), one.get("name"), one.get("input")) for one in calls])
    elif said or not blocks:
        history.add(message.role, said)


def _kind(block: Any) -> str:
    return str(block.get("type")) if isinstance(block, dict) else "text"
