"""What other programs send as chats and tools, as what the engine is asked: the same in all three APIs."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from app import system as decoders
from app.protocol.events import ModelInfo, PairLoaded
from app.server.anthropic import prepare_message
from app.server.chat_request import EngineRequest, RequestImages, prepare_chat
from app.server.fields import ChatRequest, MessagesRequest, ResponsesRequest, Warnings, parsed
from app.server.guard import ApiError
from app.server.responses import prepare_response

Json = dict[str, Any]
_EMPTY = {str: "", int: 0, float: 0.0, bool: False}
_REQUIRED = {one.name: _EMPTY.get(one.type) for one in msgspec.structs.fields(ModelInfo) if one.required}
MODEL = decoders.convert(_REQUIRED, ModelInfo)
BLIND = PairLoaded(request=0, target=MODEL, tool_format="hermes", thinking=["off", "on"])
SEEING = msgspec.structs.replace(BLIND, projector="x")
GIF = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
IMAGE: Json = {"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{GIF}"}}
CLAUDES_IMAGE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": GIF}}
INPUT_IMAGE: Json = {"type": "input_image", "image_url": f"data:image/gif;base64,{GIF}"}
LOOK: Json = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}


def chat(messages: list[Json], pair: PairLoaded = BLIND, **fields: Any) -> EngineRequest:
    with RequestImages(pair) as images:
        return prepare_chat(
            parsed(json.dumps({"messages": messages, **fields}).encode(), ChatRequest), pair, images, Warnings()
        )


def claude(messages: list[Json], pair: PairLoaded = BLIND, **fields: Any) -> EngineRequest:
    body = json.dumps({"messages": messages, **fields}).encode()
    with RequestImages(pair) as images:
        return prepare_message(parsed(body, MessagesRequest), pair, images, Warnings())


def codex(items: list[Json], pair: PairLoaded = BLIND, **fields: Any) -> EngineRequest:
    with RequestImages(pair) as images:
        return prepare_response(
            parsed(json.dumps({"input": items, **fields}).encode(), ResponsesRequest), pair, images, Warnings()
        )


def said(found: EngineRequest) -> list[tuple[str, str]]:
    return [(one.role, one.content) for one in found.command.messages]


def calling(arguments: Any, identity: Any = "c1", name: Any = "look") -> Json:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": identity, "function": function}]}


def result(content: Any = "Green.", identity: Any = "c1") -> Json:
    return {"role": "tool", "tool_call_id": identity, "content": content}


QUESTION: Json = {"role": "user", "content": "Which colour?"}


# ------------------------------------------------------------ calls and results


def test_results_stand_in_the_order_of_their_calls() -> None:
    first, second = calling("{}")["tool_calls"][0], calling("{}", "c2")["tool_calls"][0]
    both: Json = {"role": "assistant", "content": None, "tool_calls": [first, second]}
    found = chat([QUESTION, both, result("2", "c2"), result("1"), result("also 1")])
    assert said(found)[2:] == [("tool", "1"), ("tool", "also 1"), ("tool", "2")]


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ({"degrees": 5, "unit": "C"}, '{"degrees":5,"unit":"C"}'),
        ([{"name": "Ada", "age": 5}], '[{"name":"Ada","age":5}]'[1:-1]),
        ([1, 2], "[1,2]"),
        (21.5, "21.5"),
        (False, "false"),
        ({"content": [{"type": "text", "text": "Green."}], "isError": False}, "Green."),
    ],
)
def test_a_result_may_be_any_value(found: Any, shown: str) -> None:
    answered = chat([QUESTION, calling("{}"), result(found)])
    assert said(answered)[-1] == ("tool", shown) and not answered.warnings.sentences
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    answered = codex([QUESTION, call, {"type": "function_call_output", "call_id": "c1", "output": found}])
    assert said(answered)[-1] == ("tool", shown) and not answered.warnings.sentences


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("", {}),
        (None, {}),
        ("null", {}),
        ("  ", {}),
        ([], {}),
        ("[]", {}),
        ({"at": "tea"}, {"at": "tea"}),
        ('{"at": "tea"}', {"at": "tea"}),
        (json.dumps('{"at": "tea"}'), {"at": "tea"}),
    ],
)
def test_arguments_that_are_an_object(arguments: Any, wanted: Json) -> None:
    found = chat([QUESTION, calling(arguments), result()])
    (call,) = found.command.messages[1].tool_calls
    assert json.loads(call.arguments) == wanted and not found.warnings.sentences
    items = [QUESTION, {"type": "function_call", "call_id": "c1", "name": "look", "arguments": arguments}]
    found = codex([*items, {"type": "function_call_output", "call_id": "c1", "output": "Green."}])
    assert json.loads(found.command.messages[1].tool_calls[0].arguments) == wanted
    turns: list[Json] = [
        QUESTION,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": arguments}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "Green."}]},
    ]
    assert json.loads(claude(turns).command.messages[1].tool_calls[0].arguments) == wanted


@pytest.mark.parametrize("arguments", ['{"path": "a.py", "content": "impor', "[1, 2]", "Tea", 7, [1]])
def test_arguments_that_are_no_object_are_shown_as_text(arguments: Any) -> None:
    found = chat([QUESTION, calling(arguments), result("Cut."), {"role": "user", "content": "Again."}])
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments).replace(" ", "")
    assert said(found) == [
        ("user", "Which colour?"),
        ("assistant", f"look({shown})"),
        ("user", "Result of look:\nCut."),
        ("user", "Again."),
    ]
    assert len(found.warnings.sentences) == 1


@pytest.mark.parametrize("identity", [None, ""])
def test_calls_and_results_without_ids_belong_together_in_their_order(identity: str | None) -> None:
    two = calling("{}", identity)
    two["tool_calls"] += calling("{}", identity, "listen")["tool_calls"]
    messages = chat([QUESTION, two, result("Green.", identity), result("Birds.", identity)]).command.messages
    assert [(one.tool_name, one.content) for one in messages[2:]] == [("look", "Green."), ("listen", "Birds.")]
    first, second = messages[1].tool_calls
    assert messages[2].tool_call_id == first.id != second.id == messages[3].tool_call_id


@pytest.mark.parametrize("nothing", [None, "", []])
def test_results_that_are_empty_or_missing(nothing: Any) -> None:
    found = chat([QUESTION, calling("{}"), result(nothing), {"role": "user", "content": "And?"}])
    assert said(found)[2] == ("tool", "")
    found = chat([QUESTION, calling("{}"), {"role": "user", "content": "Stop."}])
    assert [one.role for one in found.command.messages] == ["user", "assistant", "user"]


def test_the_old_form_of_calls() -> None:
    messages: list[Json] = [
        QUESTION,
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
        {"role": "function", "name": "look", "content": "Green."},
    ]
    found = chat(messages, functions=[LOOK["function"]], function_call={"name": "look"})
    assert found.command.messages[2].tool_name == "look"
    use = found.command.tools
    assert use and (use.only, use.required, use.several) == ("look", True, False)


def test_calls_of_other_kinds_keep_their_results() -> None:
    items: list[Json] = [
        QUESTION,
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done."},
        {"type": "local_shell_call", "call_id": "c2", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "call_id": "c2", "output": "tea.txt"},
        {"type": "function_call", "call_id": "c3", "namespace": "mcp__files", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c3", "output": [{"type": "input_text", "text": "Tea."}]},
        {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"type": "search", "query": "tea"}},
        {"type": "item_reference", "id": "msg_1"},
        {"role": "user", "content": "And?"},
    ]
    found = codex(items)
    called = [(one.name, json.loads(one.arguments)) for message in found.command.messages for one in message.tool_calls]
    assert called == [
        ("patch", {"input": "*** Begin"}),
        ("local_shell", {"type": "exec", "command": ["ls"]}),
        ("mcp__files__read", {}),
    ]
    results = [(one.tool_name, one.content) for one in found.command.messages if one.role == "tool"]
    assert results == [("patch", "Done."), ("local_shell", "tea.txt"), ("mcp__files__read", "Tea.")]
    assert "tea" in said(found)[-2][1] and any("item_reference" in one for one in found.warnings.sentences)


def test_what_claudes_own_tools_found_is_text_in_the_history() -> None:
    blocks: list[Json] = [
        {"type": "text", "text": "I search."},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tea"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s1",
            "content": [{"type": "web_search_result", "title": "Tea", "url": "https://x.y", "encrypted_content": "Eo"}],
        },
        {"type": "redacted_thinking", "data": "Em"},
    ]
    found = claude([QUESTION, {"role": "assistant", "content": blocks}, {"role": "user", "content": "And?"}])
    assert said(found)[1] == ("assistant", 'I search.\nweb_search\n{"query":"tea"}\nTea\nhttps://x.y')
    assert not found.warnings.sentences
    reference = [{"type": "tool_reference", "tool_name": "mcp__files__read"}]
    turns: list[Json] = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "ToolSearch", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": reference}]},
    ]
    assert said(claude([QUESTION, *turns]))[2] == ("tool", "mcp__files__read")


# ------------------------------------------------------------ roles and parts


def test_thoughts_among_the_parts_of_an_answer() -> None:
    """As Mistral's and Anthropic's APIs have them."""
    for thought in (
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "reasoning", "text": "Hm."},
    ):
        parts = [thought, {"type": "text", "text": "Tea."}]
        for ask in (chat, claude):
            found = ask([QUESTION, {"role": "assistant", "content": parts}, QUESTION])
            answer = found.command.messages[1]
            assert (answer.thinking, answer.content) == ("Hm.", "Tea.") and not found.warnings.sentences


def test_parts_of_many_kinds() -> None:
    parts: list[Any] = [
        "Read this:",
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Tea."}, "title": "List"},
        {"type": "file", "file": {"filename": "a.csv", "file_data": "data:text/csv;base64,YSxi"}},
        {
            "type": "search_result",
            "title": "Shop",
            "source": "https://x.y",
            "content": [{"type": "text", "text": "4 €"}],
        },
        {"type": "thinking_budget", "tokens": 5},
        {"type": "refusal", "refusal": "No."},
    ]
    found = chat([{"role": "user", "content": parts}])
    assert said(found) == [("user", "Read this:\nList\nTea.\na.csv\na,b\nShop\n4 €\n\nNo.")]
    (warning,) = found.warnings.sentences
    assert "thinking_budget" in warning
    assert said(chat([{"role": "user", "content": {"type": "text", "text": "Alone"}}])) == [("user", "Alone")]


def test_system_messages_at_the_beginning_are_one() -> None:
    found = codex([{"role": "developer", "content": "Be kind."}, QUESTION], instructions="Be brief.")
    assert said(found)[0] == ("system", "Be brief.\n\nBe kind.")
    found = claude(
        [{"role": "system", "content": "Be kind."}, QUESTION], system=[{"type": "text", "text": "Be brief."}]
    )
    assert said(found)[0] == ("system", "Be brief.\n\nBe kind.")


# ------------------------------------------------------------ a first line that changes


def header(number: int) -> str:
    return f"x-anthropic-billing-header: cc_version=2.1.{number}; cc_entrypoint=cli; cch={number:05x};"


def test_a_line_for_another_server_does_not_change_the_prompt() -> None:
    blocks = [[{"type": "text", "text": header(one)}, {"type": "text", "text": "You help."}] for one in (40, 41)]
    first, second = (claude([QUESTION], system=one) for one in blocks)
    assert said(first) == said(second) == [("system", "You help."), ("user", "Which colour?")]
    text = f"{header(7)}\nX-Anthropic-Other: 5\nYou help."
    system = {"role": "system", "content": text}
    for found in (chat([system, QUESTION]), codex([QUESTION], instructions=text), codex([system, QUESTION])):
        assert said(found)[0] == ("system", "You help.") and len(found.warnings.sentences) == 1


def test_such_a_line_elsewhere_is_text() -> None:
    question = f"What is this?\n{header(1)}"
    assert said(
        chat([{"role": "system", "content": f"Look.\n{header(1)}"}, {"role": "user", "content": header(2)}])
    ) == [
        ("system", f"Look.\n{header(1)}"),
        ("user", header(2)),
    ]
    assert said(claude([{"role": "user", "content": question}])) == [("user", question)]


# ------------------------------------------------------------ images


def shown(found: EngineRequest) -> list[int]:
    return [len(one.images) for one in found.command.messages]


def tool_images() -> list[EngineRequest]:
    """The same in all three APIs: a result with an image, for one that sees and one that doesn't."""
    found = []
    for pair in (SEEING, BLIND):
        text: Json = {"type": "text", "text": "taken"}
        found.append(chat([QUESTION, calling("{}"), result([text, IMAGE])], pair))
        use = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]}
        back = {"type": "tool_result", "tool_use_id": "c1", "content": [text, CLAUDES_IMAGE]}
        found.append(claude([QUESTION, use, {"role": "user", "content": [back]}], pair))
        call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        output = [{"type": "input_text", "text": "taken"}, INPUT_IMAGE]
        found.append(codex([QUESTION, call, {"type": "function_call_output", "call_id": "c1", "output": output}], pair))
    return found


def test_an_image_of_a_tool_follows_as_the_users() -> None:
    for found in tool_images()[:3]:
        assert [one.role for one in found.command.messages] == ["user", "assistant", "tool", "user"]
        assert shown(found) == [0, 0, 0, 1] and not found.warnings.sentences
        assert found.command.messages[2].content == "taken"


def test_an_image_as_mcp_servers_send_it() -> None:
    part: Json = {"type": "image", "data": GIF, "mimeType": "image/gif"}
    found = chat([QUESTION, calling("{}"), result([part])], SEEING)
    assert shown(found) == [0, 0, 0, 1]
    resource = {"type": "resource", "resource": {"uri": "file:///tea.txt", "mimeType": "text/plain", "text": "Green."}}
    found = chat([QUESTION, calling("{}"), result([resource])])
    assert said(found)[2] == ("tool", "Green.\nfile:///tea.txt")


def test_a_model_that_does_not_see_is_told_of_it() -> None:
    for found in tool_images()[3:]:
        assert said(found)[2] == ("tool", "taken\n[An image that you can't see.]")
        assert shown(found) == [0, 0, 0] and len(found.warnings.sentences) == 1


def test_images_of_several_results_stand_behind_the_last_in_the_next_message() -> None:
    two = calling("{}")
    two["tool_calls"] += calling("{}", "c2", "look")["tool_calls"]
    results = [result([IMAGE]), result([IMAGE], "c2")]
    found = chat([QUESTION, two, *results, {"role": "user", "content": "And now?"}], SEEING)
    assert shown(found) == [0, 0, 0, 0, 2] and said(found)[-1] == ("user", "And now?")
    found = chat([QUESTION, two, *results, {"role": "assistant", "content": "Green."}, QUESTION], SEEING)
    assert shown(found) == [0, 0, 0, 0, 2, 0, 0]


@pytest.mark.parametrize("bad", [IMAGE, {"type": "image_url", "image_url": {"url": "https://x.y/z.png"}}])
def test_an_image_that_cannot_be_used_fails_the_request_only_while_it_is_asked_about(bad: Json) -> None:
    asks: Json = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, bad]}
    with pytest.raises(ApiError):
        chat([asks])
    with pytest.raises(ApiError):
        chat([QUESTION, {"role": "assistant", "content": "Green."}, asks])
    found = chat([asks, {"role": "assistant", "content": "A cup."}, {"role": "user", "content": "Thanks!"}])
    assert said(found)[0] == ("user", "What is it?\n[An image that you can't see.]")
    assert len(found.warnings.sentences) == 1


def test_a_file_that_is_no_text_likewise() -> None:
    data = base64.b64encode(b"%PDF-1.7").decode()
    for part in (
        {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}},
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
    ):
        asks = {"role": "user", "content": [part, {"type": "text", "text": "What does it say?"}]}
        for ask in (chat, claude, codex):
            with pytest.raises(ApiError):
                ask([asks])
            found = ask([asks, {"role": "assistant", "content": "Tea."}, QUESTION])
            assert said(found)[0][1] == "[A file that you can't read.]\nWhat does it say?"


# ------------------------------------------------------------ tools


def names(found: EngineRequest) -> list[str]:
    return [tool.name for tool in found.command.tools.tools] if found.command.tools else []


OTHERS: list[Any] = [
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 4},
    {"type": "bash_20250124", "name": "bash"},
    {"type": "web_search"},
    {"type": "mcp", "server_label": "files", "server_url": "https://x.y"},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "computer_use_preview", "display_width": 5},
    {"type": "local_shell"},
    {"type": "image_generation"},
    {"type": "function"},
    {"type": "function", "name": "two words", "function": {"name": "two words"}},
    "web_search",
    None,
]


def test_tools_that_are_no_functions_are_left_out() -> None:
    patch = {"type": "custom", "name": "patch", "format": {"type": "grammar"}}
    for found in (
        chat([QUESTION], tools=[LOOK, *OTHERS, patch]),
        codex([QUESTION], tools=[{"type": "function", **LOOK["function"]}, *OTHERS, patch]),
        claude([QUESTION], tools=[{"name": "look", "input_schema": {"type": "object"}}, *OTHERS]),
        claude([QUESTION], tools=[{"type": "custom", "name": "look", "input_schema": {}}, *OTHERS]),
    ):
        assert names(found) == ["look"] and len(found.warnings.sentences) >= 10
    assert chat([QUESTION], tools=OTHERS).command.tools is None


def test_namespaces_are_opened() -> None:
    """Codex sends the tools of MCP servers so."""
    group = {"type": "namespace", "name": "mcp__files", "tools": [{"type": "function", "name": "read"}]}
    other = {"type": "namespace", "name": "mcp__mail__", "tools": [{"type": "function", "name": "read"}, {"type": "x"}]}
    found = codex([QUESTION], tools=[group, other, {"type": "namespace", "name": "empty", "tools": []}])
    assert names(found) == ["mcp__files__read", "mcp__mail__read"]


def test_tools_of_one_name_and_too_many() -> None:
    found = chat([QUESTION], tools=[LOOK, LOOK])
    assert names(found) == ["look"] and len(found.warnings.sentences) == 1
    many = [{"type": "function", "function": {"name": f"f{number}"}} for number in range(130)]
    found = chat([QUESTION], tools=many)
    assert len(names(found)) == 128 and len(found.warnings.sentences) == 2


@pytest.mark.parametrize(
    ("choice", "required", "only"),
    [
        ("any", True, ""),
        ("required", True, ""),
        ("sometimes", False, ""),
        ({"type": "auto"}, False, ""),
        ({"type": "function", "name": "look"}, True, "look"),
        ({"type": "function", "function": {"name": "look"}}, True, "look"),
        ({"type": "tool", "name": "look", "disable_parallel_tool_use": True}, True, "look"),
    ],
)
def test_choices(choice: Any, required: bool, only: str) -> None:
    for use in (
        chat([QUESTION], tools=[LOOK], tool_choice=choice).command.tools,
        codex([QUESTION], tools=[{"type": "function", "name": "look"}], tool_choice=choice).command.tools,
        claude([QUESTION], tools=[{"name": "look"}], tool_choice=choice).command.tools,
    ):
        assert use and (use.required, use.only) == (required, only)


def test_a_choice_among_some_of_the_tools() -> None:
    tools = [{"type": "function", "name": name} for name in ("look", "listen", "smell")]
    choice = {"type": "allowed_tools", "mode": "required", "tools": [tools[0], tools[1], {"type": "web_search"}]}
    found = codex([QUESTION], tools=tools, tool_choice=choice)
    assert names(found) == ["look", "listen"] and found.command.tools and found.command.tools.required
    nested = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [LOOK]}}
    assert names(chat([QUESTION], tools=[LOOK, {**LOOK, "function": {"name": "b"}}], tool_choice=nested)) == ["look"]


@pytest.mark.parametrize("choice", [{"type": "tool", "name": "web_search"}, {"type": "web_search"}, "required"])
def test_a_call_that_there_cannot_be_is_not_made_up(choice: Any) -> None:
    for ask in (chat, codex, claude):
        with pytest.raises(ApiError):
            ask([QUESTION], tools=[{"type": "web_search", "name": "web_search"}], tool_choice=choice)


# ------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"temperature": 11}, {"temperature": 10}),
        ({"temperature": -1}, {"temperature": 0}),
        ({"top_p": 1.5}, {"top_p": 1}),
        ({"min_p": -0.1}, {"min_p": 0}),
        ({"frequency_penalty": 20}, {"frequency_penalty": 10}),
        ({"presence_penalty": -20}, {"presence_penalty": -10}),
        ({"repetition_penalty": 99}, {"repetition_penalty": 10}),
        ({"repeat_penalty": 0}, {"repetition_penalty": 1}),
    ],
)
def test_values_that_are_too_large_are_the_nearest(fields: Json, wanted: Json) -> None:
    found = chat([QUESTION], **fields)
    assert {name: getattr(found.command.sampling, name) for name in wanted} == wanted
    assert len(found.warnings.sentences) == 1


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"top_k": 0}, {"top_k": 0}),
        ({"top_k": -1}, {"top_k": 0}),
        ({"top_k": 40.0}, {"top_k": 40}),
        ({"top_p": 0}, {"top_p": 1e-6}),
        ({"repeat_last_n": -1}, {"penalty_window": 2**30}),
        ({"temperature": None, "stop": None, "seed": None, "logit_bias": None, "tools": None}, {}),
    ],
)
def test_values_that_mean_something_else(fields: Json, wanted: Json) -> None:
    found = chat([QUESTION], **fields)
    assert {name: getattr(found.command.sampling, name) for name in wanted} == wanted
    assert not found.warnings.sentences


@pytest.mark.parametrize(
    ("fields", "drafter", "length"),
    [
        ({}, "auto", "auto"),
        ({"slipstream": {"drafter": "off"}}, "none", "auto"),
        ({"slipstream": {"drafter": "ngram", "draft_length": 3}}, "ngram", 3),
        ({"slipstream": {"drafter": "auto", "draft_length": "auto"}}, "chain", "auto"),
        ({"speculative.n_max": 0}, "auto", 0),
        ({"speculative": {"n_max": 4, "p_min": 0.5}}, "auto", 4),
        ({"speculative": {"n_max": 4}, "slipstream": {"draft_length": 2}}, "auto", 2),
        ({"speculative.n_max": -1}, "auto", "auto"),
    ],
)
def test_drafting(fields: Json, drafter: str, length: int | str) -> None:
    for ask in (chat, claude, codex):
        found = ask([QUESTION], **fields)
        assert (found.command.drafter, found.command.draft_length) == (drafter, length)
        assert not found.warnings.sentences


def test_a_drafter_that_the_model_was_loaded_with() -> None:
    wanted: Json = {"slipstream": {"drafter": "lookahead"}}
    loaded = msgspec.structs.replace(BLIND, all_drafters=["ngram", "lookahead"])
    assert chat([QUESTION], loaded, **wanted).command.drafter == "lookahead"
    without = chat([QUESTION], BLIND, **wanted)
    assert without.command.drafter == "auto" and "no drafter" in without.warnings.sentences[0]


def test_a_result_whose_call_was_left_out_of_the_chat() -> None:
    found = chat([result("Green.", "gone"), QUESTION])
    assert said(found)[0] == ("user", "Result of a tool:\nGreen.") and len(found.warnings.sentences) == 1
    found = codex([{"type": "function_call_output", "call_id": "gone", "output": "Green."}, QUESTION])
    assert said(found)[0] == ("user", "Result of a tool:\nGreen.")


def test_roles_that_only_others_know() -> None:
    sent = [("human", "Hi"), ("ai", "Hello"), ("critic", "Too short."), ("developer", "Be brief."), ("model", None)]
    found = chat([{"role": role, "content": text} for role, text in sent] + [QUESTION])
    assert [one.role for one in found.command.messages] == ["user", "assistant", "user", "system", "assistant", "user"]
    (warning,) = found.warnings.sentences
    assert "“critic”" in warning and "critic" not in found.warnings.for_log


@pytest.mark.parametrize("content", [None, "", [], [{"type": "text", "text": None}], [{"type": "text"}]])
def test_messages_without_text(content: Any) -> None:
    empty = {"role": "user", "content": content, "name": None}
    assert said(chat([empty, QUESTION]))[0] == ("user", "")
    assert said(codex([empty, QUESTION]))[0] == ("user", "")
    assert said(claude([empty, QUESTION]))[0] == ("user", "")


def test_parameters_as_php_writes_them() -> None:
    function = {"name": "look", "parameters": {"type": "object", "properties": []}}
    use = chat([QUESTION], tools=[{"type": "function", "function": function}]).command.tools
    assert use and use.tools[0].parameters == {"type": "object", "properties": {}}
    use = chat([QUESTION], tools=[{"type": "function", "function": {"name": "look", "parameters": []}}]).command.tools
    assert use and use.tools[0].parameters == {}
