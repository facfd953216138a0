"""Tiny models that call tools, one for each format, and chat templates that write calls as the format says."""

from __future__ import annotations

import json
from pathlib import Path

from app.protocol.tools import ARGUMENTS, FORMATS, ID, KEY, NAME, VALUE, Tool, ToolFormat, ToolFormatName
from tests.support.thinking_models import Family, Row, make_thinking_model

MARKS = (
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<TOOLCALL>", "</TOOLCALL>"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<minimax:tool_call>", "</minimax:tool_call>"),
    *("<seed:tool_call>", "</seed:tool_call>"),
)
"""Those that are tokens of their own in the vocabularies of their families."""
WEATHER = Tool(
    name="get_weather",
    description="The weather in a place.",
    parameters={
        "type": "object",
        "properties": {"place": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["place", "days"],
        "additionalProperties": False,
    },
)
LIGHT = Tool(
    name="switch-light",
    parameters={
        "type": "object",
        "properties": {"on": {"type": "boolean"}},
        "required": ["on"],
        "additionalProperties": False,
    },
)


GENERAL_TEMPLATE = (
    "{% for one in messages %}<|im_start|>{{ one.role }}\n{{ one.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
"""Knows no tools."""


def template_for(known: ToolFormat, *, thinks: bool = False) -> str:
    """Jinja source of a template that writes calls as the format ``known``."""
    parameter = known.parameter.replace("\n", "{{ '\\n' }}")
    parameter = parameter.replace(KEY, "{{ key }}").replace(VALUE, "{{ value if value is string else value | tojson }}")
    parameters = parameter and f"{{% for key, value in call.function.arguments | items %}}{parameter}{{% endfor %}}"
    call = (
        known.call.replace("{", "{{ '{' }}")
        .replace("\n", "{{ '\\n' }}")
        .replace(NAME, "{{ call.function.name }}")
        .replace(ID, "{{ call.id }}")
        .replace(ARGUMENTS, parameters or "{{ call.function.arguments | tojson }}")
    )
    calls = f"{{% for call in one.tool_calls %}}{{{{ {json.dumps(known.separator)} if not loop.first }}}}{call}"
    if not known.several:
        calls = (
            "{% if one.tool_calls | length > 1 %}{{ raise_exception('Only one call at a time') }}{% endif %}" + calls
        )
    is_off = "{% if enable_thinking is defined and not enable_thinking %}</think>{% else %}<think>{% endif %}"
    opening, closing = (text.replace("\n", "{{ '\\n' }}") for text in (known.opening, known.closing))
    return (
        "{% if tools %}<|im_start|>system\n"
        "{% for one in tools %}{{ one | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
        "{% for one in messages %}<|im_start|>{{ one.role }}\n{{ one.content }}"
        f"{{% if one.tool_calls %}}{opening}{calls}{{% endfor %}}{closing}{{% endif %}}"
        f"<|im_end|>\n{{% endfor %}}<|im_start|>assistant\n{is_off if thinks else ''}"
    )


def _all_of(known: ToolFormat) -> str:
    return known.call + known.opening + known.closing + known.parameter


def make_tool_model(
    path: Path,
    name: ToolFormatName,
    *,
    calls: float = 0.0,
    thinks: bool = False,
    spelled: bool = False,
    noise: float = 0.0,
    context_length: int = 8192,
    in_line: bool = False,
) -> Path:
    """It answers “ yes no.”, or with calls: ``calls`` is how much more often. ``spelled``: no mark is a token.
    ``in_line``: all answers begin alike. Jinja drops the line break at the end of the other template, which answers
    that aren't the last have."""
    known = FORMATS[name]
    template = GENERAL_TEMPLATE if name == "general" else template_for(known, thinks=thinks)
    if in_line:
        template = template.replace("{{ one.role }}\n", "{{ one.role }}:").replace("assistant\n", "assistant:")
    marks = () if spelled else tuple(mark for mark in MARKS if mark in _all_of(known))
    tags = ("<think>", "</think>") if thinks else ()
    begins: Row = {"▁yes": 1.0}
    start, end = (known.mark, "") if known.mark in marks or len(known.mark) == 1 else (known.mark[:-1], known.mark[-1])
    if calls:
        begins[start] = calls
    family = Family(
        begins=begins,
        ends={},
        rows={
            "<think>": {"▁so": 1},
            "▁so": {"▁then": 1},
            "▁then": {"▁so": 1, "</think>": 0.5} if thinks else {"▁so": 1},
            "▁yes": {"▁no": 1},
            "▁no": {".": 1},
            ".": {"</s>": 1},
            **({known.mark: {"▁yes": 1.0}} if known.mark in marks else {}),  # where nothing forces a call
            "}": {"</s>": 1},
            ">": {"</s>": 1},
            **{mark: {"</s>": 1} for mark in marks if mark.startswith("</")},
            **({"<0x0A>": {known.closing.strip(): 1.0}} if known.closing.strip() in marks else {}),
            **({start: {end: 1.0}} if end else {}),
        },
        controls=tuple(mark for mark in marks if mark.startswith("[")),
        user_defined=(*tags, *(mark for mark in marks if mark.startswith("<"))),
        words=(start,) if end else (),
        template=template,
    )
    return make_thinking_model(path, family, noise=noise, context_length=context_length)
