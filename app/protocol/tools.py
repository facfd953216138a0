"""Tools that a model may call, and the formats in which chat templates write calls.

A format is a text with placeholders. The engine turns it into a grammar, and the parser of the answer finds the calls
with it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from app.protocol.notations import ELEMENTS, GEMMA, KEY, MINIMAX, PLAIN, PYTHON_ARGUMENTS, VALUE, Notation

MAX_TOOLS = 128
NAME, ID, ARGUMENTS, INDEX = "\ue000", "\ue001", "\ue002", "\ue005"
"""Placeholders in `ToolFormat.call`: the tool's name, the call's id, a JSON object or all parameters, and the number of
earlier calls."""
ID_LENGTH = 9
"""Letters and digits in a call's id; Mistral's templates accept no other length."""
_ID = re.compile(rf"[A-Za-z0-9]{{{ID_LENGTH}}}")

_Objects = Literal["hermes", "llama", "nemotron", "functionary", "apertus", "apriel", "gigachat", "reka"]
_InTokens = Literal["mistral", "mistral-id", "mistral-list", "minimax-list", "kimi", "cohere", "harmony"]
_Tags = Literal["qwen-xml", "glm", "glm-tight", "ling", "minimax", "seed", "minicpm", "step", "hunyuan"]
_Notations = Literal["deepseek", "deepseek-functions", "gemma", "lfm", "minimax-elements"]
ToolFormatName = Literal[_Objects, _InTokens, _Tags, _Notations, "general"]
"""``general``: the template doesn't write calls, or uses an unknown format."""


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """A call in an answer."""

    id: str
    name: str
    arguments: str
    """A JSON object."""


def template_id(identity: str) -> str:
    """A call's id as every chat template accepts it."""
    if _ID.fullmatch(identity):
        return identity
    return hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:ID_LENGTH]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:/-]{1,128}\Z")]
    description: str = ""
    parameters: dict[str, Any] = {}
    """The JSON schema of an object."""
    strict: bool = False
    """Refuse parameters whose schema can't be enforced completely."""


def definition(tool: Tool) -> dict[str, Any]:
    """A tool as templates and servers expect it."""
    parameters = tool.parameters or {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """The tools for one answer."""

    tools: Annotated[list[Tool], msgspec.Meta(min_length=1, max_length=MAX_TOOLS)]
    """All that the model is shown."""
    required: bool = False
    """The model has to call one instead of answering with text."""
    only: str = ""
    """The name of the only one it may call; empty: any."""
    several: bool = True
    """Allow several calls, if the format does."""
    none: bool = False
    """Only show them, so that the prompt begins as before."""


@dataclass(frozen=True)
class ToolFormat:
    """How a template writes the calls of an answer: ``opening``, calls with ``separator`` between them, ``closing``."""

    mark: str
    """The first characters of a call; text before the calls doesn't contain them."""
    call: str
    opening: str = ""
    separator: str = ""
    closing: str = ""
    parameter: str = ""
    """How one argument is written, with `KEY` and `VALUE`, if the arguments aren't a JSON object."""
    other: str = ""
    """How one is written that isn't a text, if in another way."""
    between: str = ""
    """What separates them."""
    notation: Notation = PLAIN
    """How their values are written."""
    in_template: str = ""
    """``call`` as templates write it, if models write it in another way."""
    text_last: bool = False
    """Whether templates write text that came before the calls behind their results."""
    channels: bool = False
    """Whether each part of an answer is in a channel, calls as well."""
    several: bool = True
    """Whether an answer may have more than one call."""
    anywhere: bool = True
    """Whether text may come before the calls; if not, an answer is a call if it begins like one."""

    @property
    def begins(self) -> str:
        """The text before the name of the first call."""
        return self.opening + self.call.partition(NAME)[0]

    @property
    def takes_texts(self) -> bool:
        """Whether templates write arguments best if all of them are texts already: some would write ``True``."""
        return bool(self.parameter) and not self.other and self.notation == PLAIN

    @property
    def members(self) -> tuple[str, ...]:
        """How arguments are written: all of them, or texts and others."""
        return (self.parameter, self.other) if self.other else (self.parameter,)


_JSON_CALL = f'{{"name": "{NAME}", "arguments": {ARGUMENTS}}}'
_JSON_WITH_ID = f'{{"name": "{NAME}", "arguments": {ARGUMENTS}, "id": "{ID}"}}'
_FUNCTION = f"<tool_call>\n<function={NAME}>\n{ARGUMENTS}</function>\n</tool_call>"
_PARAMETER = f"<parameter={KEY}>\n{VALUE}\n</parameter>\n"
GENERAL = ToolFormat("<tool_call>", f"<tool_call>\n{_JSON_CALL}\n</tool_call>", separator="\n")
"""The format of most models that were trained to call tools."""


def _deepseek(block: str, between: str, behind: str) -> ToolFormat:
    return ToolFormat(
        f"<｜DSML｜{block}>",
        f'<｜DSML｜invoke name="{NAME}">\n{ARGUMENTS}{between}</｜DSML｜invoke>',
        opening=f"<｜DSML｜{block}>\n",
        separator="\n",
        closing=f"\n</｜DSML｜{block}>",
        parameter=f'<｜DSML｜parameter name="{KEY}" string="true">{VALUE}</｜DSML｜parameter>{behind}',
        other=f'<｜DSML｜parameter name="{KEY}" string="false">{VALUE}</｜DSML｜parameter>{behind}',
        between=between,
    )


FORMATS: dict[ToolFormatName, ToolFormat] = {
    "hermes": GENERAL,
    "llama": ToolFormat("{", f'{{"name": "{NAME}", "parameters": {ARGUMENTS}}}', several=False, anywhere=False),
    "mistral": ToolFormat("[TOOL_CALLS]", f"[TOOL_CALLS]{NAME}[ARGS]{ARGUMENTS}"),
    "mistral-id": ToolFormat("[TOOL_CALLS]", f"[TOOL_CALLS]{NAME}[CALL_ID]{ID}[ARGS]{ARGUMENTS}"),
    "mistral-list": ToolFormat("[TOOL_CALLS]", _JSON_WITH_ID, "[TOOL_CALLS][", ", ", "]"),
    "nemotron": ToolFormat("<TOOLCALL>", _JSON_CALL, "<TOOLCALL>[", ", ", "]</TOOLCALL>"),
    "functionary": ToolFormat("<function=", f"<function={NAME}>{ARGUMENTS}</function>"),
    "qwen-xml": ToolFormat("<tool_call>", _FUNCTION, separator="\n", parameter=_PARAMETER),
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
    "ling": ToolFormat(
        "<tool_call>",
        f"<tool_call>{NAME}\n{ARGUMENTS}\n</tool_call>",
        separator="\n",
        parameter=f"<arg_key>{KEY}</arg_key>\n<arg_value>{VALUE}</arg_value>",
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
    "step": ToolFormat("<tool_call>", _FUNCTION, parameter=_PARAMETER),
    "reka": ToolFormat("<tool_call>", GENERAL.call),
    "minimax-list": ToolFormat("<tool_calls>", _JSON_CALL, "<tool_calls>\n", "\n", "\n</tool_calls>"),
    "minimax-elements": ToolFormat(
        MINIMAX,
        f'{MINIMAX}<invoke name="{NAME}">{ARGUMENTS}{MINIMAX}</invoke>\n',
        opening=f"{MINIMAX}<tool_call>\n",
        closing=f"{MINIMAX}</tool_call>",
        parameter=ELEMENTS.member,
        notation=ELEMENTS,
    ),
    "apertus": ToolFormat(
        "<|tools_prefix|>", f'{{"{NAME}": {ARGUMENTS}}}', "<|tools_prefix|>[", ", ", "]<|tools_suffix|>"
    ),
    "apriel": ToolFormat("<tool_calls>", _JSON_WITH_ID, "<tool_calls>[", ", ", "]</tool_calls>"),
    "hunyuan": ToolFormat(
        "<tool_calls:opensource>",
        f"<tool_call:opensource>{NAME}<tool_sep:opensource>\n{ARGUMENTS}</tool_call:opensource>\n",
        opening="<tool_calls:opensource>\n",
        closing="</tool_calls:opensource>",
        parameter=f"<arg_key:opensource>{KEY}</arg_key:opensource>\n"
        f"<arg_value:opensource>{VALUE}</arg_value:opensource>\n",
    ),
    "gigachat": ToolFormat("<|function_call|>", f"<|function_call|>{_JSON_CALL}", several=False),
    "kimi": ToolFormat(
        "<|tool_calls_section_begin|>",
        f"<|tool_call_begin|>functions.{NAME}:{INDEX}<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|>",
        opening="<|tool_calls_section_begin|>",
        closing="<|tool_calls_section_end|>",
    ),
    "cohere": ToolFormat(
        "<|START_ACTION|>",
        f'    {{"tool_call_id": "{INDEX}", "tool_name": "{NAME}", "parameters": {ARGUMENTS}}}',
        opening="<|START_ACTION|>[\n",
        separator=",\n",
        closing="\n]<|END_ACTION|>",
    ),
    "deepseek": _deepseek("tool_calls", between="\n", behind=""),
    "deepseek-functions": _deepseek("function_calls", between="", behind="\n"),
    "gemma": ToolFormat(
        "<|tool_call>",
        f"<|tool_call>call:{NAME}{{{ARGUMENTS}}}<tool_call|>",
        parameter=GEMMA.member,
        between=",",
        notation=GEMMA,
        text_last=True,
    ),
    "lfm": ToolFormat(
        "<|tool_call_start|>",
        f"{NAME}({ARGUMENTS})",
        opening="<|tool_call_start|>[",
        separator=", ",
        closing="]<|tool_call_end|>",
        parameter=f"{KEY}={VALUE}",
        between=", ",
        notation=PYTHON_ARGUMENTS,
    ),
    "harmony": ToolFormat(
        "<|channel|>commentary to=functions.",
        f"<|channel|>commentary to=functions.{NAME} <|constrain|>json<|message|>{ARGUMENTS}",
        in_template=f" to=functions.{NAME}<|channel|>commentary json<|message|>{ARGUMENTS}",
        channels=True,
        several=False,
    ),
}
