"""The chat template of a model, which the helper process compiles and renders."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from app import helper
from app.errors import KnownError
from app.helper import messages as helper_messages
from app.protocol.commands import Message
from app.protocol.options import TemplateVariables
from app.protocol.tools import Tool

Request = TypeVar("Request")
Answer = TypeVar("Answer")
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_REASONS = {
    "broken": "is broken ({detail})",
    "endless": "produces endless text",
    "loses": "leaves out what you wrote",
    "failed": "failed ({detail})",
}


class UnusableTemplateError(KnownError):
    """A template, and not the helper or the chat, is why there is no prompt."""

    def __init__(self, reason: str) -> None:
        """``reason``: what goes on behind "The chat template"."""
        super().__init__(f"The model's chat template {reason}. Choose another one where you open the model.")
        self.reason = reason


@dataclass(frozen=True)
class TemplateInputs:
    """What a template sees besides the messages: the local time, those of its variables that are set, and tools."""

    now: datetime
    variables: TemplateVariables = field(default_factory=dict)
    tools: Sequence[Tool] = ()
    text_arguments: bool = False
    """Whether the template wants the arguments of calls as a JSON text, and not as an object."""


class ChatTemplate:
    """Renders messages to the text a model expects.

    Attributes:
        source: What the file has.
        variables: The names that `TemplateInputs.variables` may have.
    """

    def __init__(self, source: str, bos: str = "", eos: str = "", process: helper.Helper | None = None) -> None:
        """``process``: what compiles and renders it, by default the helper that all of this process share.

        Raises `KnownError` when ``source`` is no valid template.
        """
        self.source = source
        self._bos = bos
        self._eos = eos
        self._helper = process or helper.shared()
        checked = _asked(self._helper.check_template, helper_messages.CheckTemplate(source))
        if checked.broken:
            raise UnusableTemplateError(_REASONS["broken"].format(detail=checked.broken))
        self.variables = frozenset(checked.variables)

    def render(self, chat: Sequence[Message], inputs: TemplateInputs | None = None) -> str:
        """The prompt for ``chat``, up to where the answer begins. ``inputs``: by default nothing but the time.

        What the helper does for templates that can't take it as it is: `app.helper.templates.answer`. Raises
        `KnownError` when the template fails, leaves out words of the user, does not declare one of the variables,
        passes the time or the memory of a request (`app.helper.limits`) or writes more than 16 MB.
        """
        inputs = inputs or TemplateInputs(datetime.now())
        if unknown := sorted(inputs.variables.keys() - self.variables):
            raise KnownError(f"The model's chat template has no variable “{unknown[0]}” that can be set.")
        plain = [_shown(one, text_arguments=inputs.text_arguments) for one in chat]
        now, variables, tools = inputs.now.isoformat(), inputs.variables, list(map(definition, inputs.tools))
        request = helper_messages.RenderTemplate(self.source, self._bos, self._eos, plain, now, variables, tools)
        return _asked(self._helper.template, request).text

    def forget(self) -> None:
        """End the process that rendered it, and what is left of messages in its memory."""
        self._helper.stop()


def _shown(message: Message, *, text_arguments: bool) -> helper_messages.Message:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": call.arguments if text_arguments else json.loads(call.arguments),
            },
        }
        for call in message.tool_calls
    ]
    return helper_messages.Message(
        message.role, message.content, message.thinking, calls, message.tool_call_id, message.tool_name
    )


def definition(tool: Tool) -> dict[str, Any]:
    """A tool as templates expect it."""
    parameters = tool.parameters or {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _asked(ask: Callable[[Request], Answer | helper_messages.TemplateFailed], request: Request) -> Answer:
    try:
        answer = ask(request)
    except helper.HelperError as error:
        raise _known(error) from error
    if isinstance(answer, helper_messages.TemplateFailed):
        raise UnusableTemplateError(_REASONS[answer.reason].format(detail=answer.detail))
    return answer


def _known(error: helper.HelperError) -> KnownError:
    match error:
        case helper.TookTooLong():
            return UnusableTemplateError(f"didn't finish within {helper.TIME_LIMIT_SECONDS:.0f} seconds")
        case helper.TooMuchMemory():
            return UnusableTemplateError(f"needs more than {helper.MEMORY_LIMIT // 2**20} MB of memory")
        case helper.NotStarted():
            return KnownError(
                f"The process that reads chat templates couldn't be started ({error}). "
                "Close other programs and try again."
            )
        case _:
            return KnownError(
                "The process that reads chat templates ended unexpectedly, so there is no answer. "
                "Try again; if it keeps happening, choose another chat template where you open the model."
            )
