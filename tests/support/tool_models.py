"""Tiny models that call tools, one for each format, and chat templates that write calls as the format says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from app.protocol.notations import KEY, VALUE, Around, Notation
from app.protocol.tools import ARGUMENTS, FORMATS, ID, INDEX, NAME, Tool, ToolFormat, ToolFormatName
from tests.support.thinking_models import FAMILIES, Family, Row, make_thinking_model

MARKS = (
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<TOOLCALL>", "</TOOLCALL>"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<minimax:tool_call>", "</minimax:tool_call>"),
    *("<seed:tool_call>", "</seed:tool_call>", "<|tools_prefix|>", "<|tools_suffix|>", "<|function_call|>"),
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>"),
    *("<|tool_call_argument_begin|>", "<|START_ACTION|>", "<|END_ACTION|>", "｜DSML｜", "]<]minimax[>["),
    *("<|tool_call>", "<tool_call|>", '<|"|>', "<|tool_call_start|>"),
    *("<tool_calls:opensource>", "</tool_calls:opensource>", "<arg_value:opensource>", "</arg_value:opensource>"),
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


def _jinja(text: str) -> str:
    """Jinja source that writes ``text``, except placeholders."""
    return "".join(f"{{{{ {json.dumps(one)} }}}}" if one in "{}\n" else one for one in text)


def _value_macro(notation: Notation) -> str:
    """The macro ``value``, which writes one in this ``notation``, as the templates of its models do."""

    def entries(kind: str, around: Around, entry: str, pairs: str) -> str:
        begins, ends = _jinja(around[0]), _jinja(around[2])
        between = f"{{{{ '' if loop.last else {json.dumps(around[1])} }}}}"
        inside = _jinja(entry).replace(KEY, "{{ key }}").replace(VALUE, f"{{{{ {kind}(one) }}}}")
        return f"{begins}{{% for {pairs} %}}{inside}{between}{{% endfor %}}{ends}"

    def macro(name: str, own: Notation) -> str:
        quotes = _jinja(own.quotes)
        ordered = "one | dictsort" if own.sorts else "one.items()"
        ways = [f"{{% if one is string %}}{quotes}{{{{ one }}}}{quotes}"]
        if own.object:
            ways.append(f"{{% elif one is mapping %}}{entries(name, own.object, own.member, f'key, one in {ordered}')}")
        if own.array:
            inner = f"{name}_inside" if own.within else name
            listed = entries(inner, own.array, own.item, "one in one")
            ways.append(f"{{% elif one is sequence and one is not mapping %}}{listed}")
        for word, test in (("null", "none"), ("true", "true"), ("false", "false")):
            ways += [f"{{% elif one is {test} %}}{own.words[word]}"] if word in own.words else []
        ways.append("{% else %}{{ one | tojson }}{% endif %}")
        return f"{{% macro {name}(one) %}}{''.join(ways)}{{% endmacro %}}"

    return (macro("value_inside", notation.within) if notation.within else "") + macro("value", notation)


def template_for(known: ToolFormat, *, thinks: bool = False) -> str:
    """Jinja source of a template that writes calls as the format ``known``."""
    ways = [_jinja(one).replace(KEY, "{{ key }}").replace(VALUE, "{{ value(one) }}") for one in known.members]
    chosen = ways[0] if len(ways) == 1 else f"{{% if one is string %}}{ways[0]}{{% else %}}{ways[1]}{{% endif %}}"
    ordered = "| dictsort" if known.notation.sorts else ".items()"
    between = f"{{{{ {json.dumps(known.between)} if not loop.first }}}}"
    parameters = f"{{% for key, one in call.function.arguments{ordered} %}}{between}{chosen}{{% endfor %}}"
    call = (
        _jinja(known.in_template or known.call)
        .replace(NAME, "{{ call.function.name }}")
        .replace(ID, "{{ call.id }}")
        .replace(INDEX, "{{ loop.index0 }}")
        .replace(ARGUMENTS, parameters if known.parameter else "{{ call.function.arguments | tojson }}")
    )
    calls = f"{{% for call in one.tool_calls %}}{{{{ {json.dumps(known.separator)} if not loop.first }}}}{call}"
    if not known.several:
        calls = (
            "{% if one.tool_calls | length > 1 %}{{ raise_exception('Only one call at a time') }}{% endif %}" + calls
        )
    is_off = "{% if enable_thinking is defined and not enable_thinking %}</think>{% else %}<think>{% endif %}"
    opening, closing = map(_jinja, (known.opening, known.closing))
    return (
        f"{_value_macro(known.notation)}{{% if tools %}}<|im_start|>system\n"
        "{% for one in tools %}{{ one | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
        "{% for one in messages %}<|im_start|>{{ one.role }}\n{{ one.content }}"
        f"{{% if one.tool_calls %}}{opening}{calls}{{% endfor %}}{closing}{{% endif %}}"
        f"<|im_end|>\n{{% endfor %}}<|im_start|>assistant\n{is_off if thinks else ''}"
    )


_HARMONY = (
    "<|start|>system<|message|>{% for one in tools or [] %}{{ one | tojson }}{% endfor %}<|end|>"
    "{% set last = namespace(name='') %}{% for one in messages %}{% if one.role == 'assistant' and one.tool_calls %}"
    "{% if one.content and one.thinking %}{{ raise_exception('Cannot pass both') }}{% endif %}"
    "{% set thought = one.thinking or one.content %}"
    "{% if thought %}<|start|>assistant<|channel|>analysis<|message|>{{ thought }}<|end|>{% endif %}"
    "{% set last.name = one.tool_calls[0].function.name %}<|start|>assistant to=functions.{{ last.name }}"
    "<|channel|>commentary json<|message|>{{ one.tool_calls[0].function.arguments | tojson }}<|call|>"
    "{% elif one.role == 'tool' %}<|start|>functions.{{ last.name }} to=assistant<|channel|>commentary<|message|>"
    "{{ one.content | tojson }}<|end|>{% else %}<|start|>{{ one.role }}"
    "{% if one.role == 'assistant' %}<|channel|>final{% endif %}<|message|>{{ one.content }}<|end|>"
    "{% endif %}{% endfor %}<|start|>assistant"
)
"""What gpt-oss's does."""


def _channel_model(calls: float) -> Family:
    known = FAMILIES["gpt-oss"]
    channels = {"analysis": 0.5, "final": 1.0, "commentary": 1.0}
    begun = {"<|message|>": 0.2, "▁": calls or 0.2}
    return replace(
        known,
        rows={**known.rows, "<|channel|>": channels, "commentary": begun, "}": {"<|call|>": 1}},
        controls=(*known.controls, "<|constrain|>"),
        template=_HARMONY,
    )


def _all_of(known: ToolFormat) -> str:
    return known.call + known.opening + known.closing + known.parameter + known.notation.quotes


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
    if known.channels:
        return make_thinking_model(path, _channel_model(calls), noise=noise, context_length=context_length)
    template = GENERAL_TEMPLATE if name == "general" else template_for(known, thinks=thinks)
    if in_line:
        template = template.replace("{{ one.role }}\n", "{{ one.role }}:").replace("assistant\n", "assistant:")
    marks = () if spelled else tuple(mark for mark in MARKS if mark in _all_of(known))
    tags = ("<think>", "</think>") if thinks else ()
    begins: Row = {"▁yes": 1.0}
    token = next((mark for mark in marks if mark in known.mark), "")
    if token:
        start, end = (token, "") if token == known.mark else (known.mark.partition(token)[0], token)
    else:
        start, end = (known.mark, "") if len(known.mark) == 1 else (known.mark[:-1], known.mark[-1])
    if calls:
        begins[start] = calls
    ends = known.closing or known.call
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
            **{mark: {"</s>": 1} for mark in marks if mark.startswith("</") or ends.endswith(mark)},
            **({"<0x0A>": {known.closing.strip(): 1.0}} if known.closing.strip() in marks else {}),
            **({start: {end: 1.0}} if end else {}),
        },
        controls=tuple(mark for mark in marks if not mark.startswith("<")),
        user_defined=(*tags, *(mark for mark in marks if mark.startswith("<"))),
        words=(start,) if end and len(start) > 1 else (),
        template=template,
    )
    return make_thinking_model(path, family, noise=noise, context_length=context_length)
