"""Tools that a model may call: what a chat says of them, and how the formats of chat templates write a call.

A format is a text with places in it. The engine makes of it what an answer has to follow, and whoever reads the answer
finds the calls in it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

MAX_TOOLS = 128
NAME, ID, ARGUMENTS = "\ue000", "\ue001", "\ue002"
"""Places in `ToolFormat.call`: the tool's name, nine letters or digits, and a JSON object or all parameters."""
KEY, VALUE = "\ue003", "\ue004"
"""Places in `ToolFormat.parameter`: its name, and a text as it is or another value as JSON."""
ID_LENGTH = 9
"""Of the name of a call; the templates of Mistral take no other."""

ToolFormatName = Literal[
    "hermes",
    "llama",
    "mistral",
    "mistral-id",
    "mistral-list",
    "nemotron",
    "functionary",
    "qwen-xml",
    "glm",
    "glm-tight",
    "minimax",
    "seed",
    "minicpm",
    "general",
]
"""``general``: the template writes no calls, or in a form that isn't known."""


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """A call in an answer."""

    id: str
    name: str
    arguments: str
    """A JSON object."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:/-]{1,128}\Z")]
    description: str = ""
    parameters: dict[str, Any] = {}
    """The JSON schema of an object."""
    strict: bool = False
    """Refuse parameters that can't be forced as a whole."""


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the model may call in one answer."""

    tools: Annotated[list[Tool], msgspec.Meta(min_length=1, max_length=MAX_TOOLS)]
    """All that it sees."""
    required: bool = False
    """It has to call one; otherwise it may also answer with text."""
    only: str = ""
    """The name of the one that it may call; empty: any."""
    several: bool = True
    """Whether there may be more than one call, where the format allows that."""


@dataclass(frozen=True)
class ToolFormat:
    """How a template writes the calls of an answer: ``opening``, calls with ``separator`` between them, ``closing``."""

    mark: str
    """How it begins; text in front of the calls doesn't have that."""
    call: str
    opening: str = ""
    separator: str = ""
    closing: str = ""
    parameter: str = ""
    """How one argument is written where these aren't a JSON object."""
    several: bool = True
    """Whether an answer may have more than one call."""
    anywhere: bool = True
    """Whether text may stand before the calls; else an answer is a call if its text begins like one."""

    @property
    def begins(self) -> str:
        """The text before the name of the first call."""
        return self.opening + self.call.partition(NAME)[0]


GENERAL = ToolFormat(
    "<tool_call>", f'<tool_call>\n{{"name": "{NAME}", "arguments": {ARGUMENTS}}}\n</tool_call>', separator="\n"
)
"""What most models write that were trained on calls."""
FORMATS: dict[ToolFormatName, ToolFormat] = {
    "hermes": GENERAL,
    "llama": ToolFormat("{", f'{{"name": "{NAME}", "parameters": {ARGUMENTS}}}', several=False, anywhere=False),
    "mistral": ToolFormat("[TOOL_CALLS]", f"[TOOL_CALLS]{NAME}[ARGS]{ARGUMENTS}"),
    "mistral-id": ToolFormat("[TOOL_CALLS]", f"[TOOL_CALLS]{NAME}[CALL_ID]{ID}[ARGS]{ARGUMENTS}"),
    "mistral-list": ToolFormat(
        "[TOOL_CALLS]",
        f'{{"name": "{NAME}", "arguments": {ARGUMENTS}, "id": "{ID}"}}',
        opening="[TOOL_CALLS][",
        separator=", ",
        closing="]",
    ),
    "nemotron": ToolFormat(
        "<TOOLCALL>",
        f'{{"name": "{NAME}", "arguments": {ARGUMENTS}}}',
        opening="<TOOLCALL>[",
        separator=", ",
        closing="]</TOOLCALL>",
    ),
    "functionary": ToolFormat("<function=", f"<function={NAME}>{ARGUMENTS}</function>"),
    "qwen-xml": ToolFormat(
        "<tool_call>",
        f"<tool_call>\n<function={NAME}>\n{ARGUMENTS}</function>\n</tool_call>",
        separator="\n",
        parameter=f"<parameter={KEY}>\n{VALUE}\n</parameter>\n",
    ),
    "glm": ToolFormat(
        "<tool_call>",
        f"<tool_call>{NAME}\n{ARGUMENTS}</tool_call>",
        separator="\n",
        parameter=f"<arg_key>{KEY}</arg_key>\n<arg_value>{VALUE}</arg_value>\n",
    ),
    "glm-tight": ToolFormat(
        "<tool_call>",
        f"<tool_call>{NAME}{ARGUMENTS}</tool_call>",
        parameter=f"<arg_key>{KEY}</arg_key><arg_value>{VALUE}</arg_value>",
    ),
    "minimax": ToolFormat(
        "<minimax:tool_call>",
        f'<invoke name="{NAME}">\n{ARGUMENTS}</invoke>',
        opening="<minimax:tool_call>\n",
        separator="\n",
        closing="\n</minimax:tool_call>",
        parameter=f'<parameter name="{KEY}">{VALUE}</parameter>\n',
    ),
    "seed": ToolFormat(
        "<seed:tool_call>",
        f"<seed:tool_call>\n<function={NAME}>\n{ARGUMENTS}</function>\n</seed:tool_call>",
        separator="\n",
        parameter=f"<parameter={KEY}>{VALUE}</parameter>\n",
    ),
    "general": GENERAL,
    "minicpm": ToolFormat(
        "<function name=",
        f'<function name="{NAME}">{ARGUMENTS}</function>',
        separator="\n",
        parameter=f'<param name="{KEY}">{VALUE}</param>',
    ),
}
