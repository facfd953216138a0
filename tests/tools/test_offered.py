"""What tools are called for the model, and what the user's permission is bound to."""

from __future__ import annotations

import msgspec
import pytest

from app import system
from app.protocol.tools import Tool
from app.tools.messages import ServerEntry, ServerTool
from app.tools.offered import offered_tools, problem_of

SCHEMA = {"type": "object", "properties": {"zone": {"type": "string"}}}
TIME = ServerTool(name="get_time", description="What time is it?", parameters=SCHEMA)
ENTRY = ServerEntry(name="time", command="uvx", args=["mcp-server-time"])


def named(**tools: list[str]) -> list[str]:
    """The names of the tools of these servers."""
    offered = offered_tools({server: [ServerTool(name=name) for name in names] for server, names in tools.items()})
    return [tool.name for tool in offered]


def test_a_tool_has_its_own_name_unless_another_has_it_too() -> None:
    assert named(files=["read", "write"], web=["read"]) == ["files_read", "write", "web_read"]


def test_the_order_does_not_depend_on_the_servers() -> None:
    assert named(b=["z", "a"], a=["y"]) == named(a=["y"], b=["a", "z"])


HOSTILE = [
    "", " ", ".", "a.b", "ümlaut", "get time", "a\nb", "\u202eevil", "x" * 500, "x" * 499 + "y", "{{name}}",
    "<|im_end|>", "a/b", "a:b", "名前", "\ud800", "__proto__", "a" * 64,
]  # fmt: skip


def test_every_name_is_valid_and_of_one_tool() -> None:
    """Whatever the server calls it; even two tools whose clean names are the same are told apart."""
    tools = {server: [ServerTool(name=name) for name in HOSTILE] for server in ("a", "a_b", "", "\u202e", "x" * 64)}
    offered = offered_tools(tools)
    assert len({tool.name for tool in offered}) == len(offered) == 5 * len(HOSTILE)
    for tool in offered:
        system.convert(msgspec.to_builtins(Tool(name=tool.name)), Tool)
        assert len(tool.name) <= 64


def test_names_that_become_the_same_are_told_apart() -> None:
    names = named(a=["b_c", "x"], a_b=["c", "x"], c=["b_c", "c"])
    assert len(set(names)) == 6


def test_no_tool_takes_the_name_of_another_with_its_hash() -> None:
    others = named(a=["search"], m=["search", "a_search"])
    names = named(a=["search"], m=["search", "a_search", others[0]])
    assert names[0] == others[0] != others[1] and len(set(names)) == 4


def test_the_first_of_two_tools_with_one_name_is_the_tool() -> None:
    twice = [TIME, msgspec.structs.replace(TIME, description="Another.")]
    assert [tool.tool for tool in offered_tools({"time": twice})] == [TIME]


def test_the_model_gets_description_and_schema() -> None:
    (tool,) = offered_tools({"time": [TIME]}, {"time": ENTRY})
    assert tool.for_model() == Tool(name="get_time", description="What time is it?", parameters=SCHEMA)
    assert (tool.key, tool.server_name) == ("time.get_time", "time")
    (ours,) = offered_tools({"": [TIME]})
    assert (ours.key, ours.server_name) == (".get_time", "Slipstream")


def fingerprint(tool: ServerTool = TIME, entry: ServerEntry = ENTRY) -> str:
    (one,) = offered_tools({entry.name: [tool]}, {entry.name: entry})
    return one.fingerprint


@pytest.mark.parametrize(
    "changed",
    [
        fingerprint(msgspec.structs.replace(TIME, name="time")),
        fingerprint(msgspec.structs.replace(TIME, title="Clock")),
        fingerprint(msgspec.structs.replace(TIME, description="What time is it? ")),
        fingerprint(msgspec.structs.replace(TIME, parameters={**SCHEMA, "required": ["zone"]})),
        fingerprint(msgspec.structs.replace(TIME, approach="read_only")),
        fingerprint(entry=msgspec.structs.replace(ENTRY, name="clock")),
        fingerprint(entry=msgspec.structs.replace(ENTRY, command="npx")),
        fingerprint(entry=msgspec.structs.replace(ENTRY, args=["mcp-server-time", "--x"])),
        fingerprint(entry=msgspec.structs.replace(ENTRY, args=["mcp-server-time --x"])),
        fingerprint(entry=ServerEntry(name="time", url="https://example.org")),
    ],
)
def test_whatever_the_user_allowed_is_in_the_fingerprint(changed: str) -> None:
    assert changed != fingerprint()


def test_the_order_of_a_schemas_keys_is_not() -> None:
    turned = msgspec.structs.replace(TIME, parameters=dict(reversed(SCHEMA.items())))
    assert fingerprint(turned) == fingerprint()


def test_neither_is_what_only_concerns_this_computer() -> None:
    assert fingerprint(entry=msgspec.structs.replace(ENTRY, timeout_seconds=5, off=["x"])) == fingerprint()


def test_arguments_that_name_something_twice_are_not_sent() -> None:
    """Only one of them would be, and the other could be the one that the user looked at."""
    (tool,) = offered_tools({"files": [ServerTool(name="remove", parameters={"required": ["path", [{}]]})]})
    assert problem_of('{"path": "a", "more": {"x": 1, "y": 1}}', tool) == ""
    for arguments in ('{"path": "a", "path": "b"}', '{"path": "a", "more": [{"x": 1, "x": 2}]}'):
        assert "have a name twice" in problem_of(arguments, tool)
    assert problem_of("{}", tool) == "The call lacks path."
