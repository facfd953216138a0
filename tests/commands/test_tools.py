"""``generate`` with tools: a model that calls them, the real tools process, and real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.protocol.tools import ARGUMENTS, FORMATS, NAME
from tests.support import remote_streams
from tests.support.command_line import ROOT, called, python_path
from tests.support.matrix import in_proof
from tests.support.model_server import Asked, ModelServer, Reply
from tests.support.remote_streams import DONE, chunk
from tests.support.scripted_calls import make_scripted_target
from tests.support.thinking_models import Family, make_thinking_model
from tests.support.tool_models import template_for

HOSTILE = "Sun\u202eny\x1b[2J"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With ``mcp.json``."""
    folder = tmp_path_factory.mktemp("tools")
    server = {"command": sys.executable, "args": ["-m", "tests.support.tool_server"], "cwd": str(ROOT)}
    broken = {"command": sys.executable, "args": ["-c", "print('no server'); raise SystemExit(3)"]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"test": server}}), "utf-8")
    (folder / "broken.json").write_text(json.dumps({"mcpServers": {"test": server, "bad": broken}}), "utf-8")
    return folder


def model(folder: Path, tool: str, **arguments: Any) -> Path:
    """It calls the tool, and says “ Done.” to the result."""
    path = folder / f"{tool}.gguf"
    return path if path.exists() else make_scripted_target(path, {tool: arguments}, "now", " Done.")


def generate(folder: Path, tool: str, *options: str | Path, **arguments: Any) -> subprocess.CompletedProcess[str]:
    target = model(folder, tool, **arguments)
    return called("generate", "--target", target, "--prompt", "Do it now", "--max-tokens", "400", *options)


def test_an_allowed_tool_is_called(folder: Path) -> None:
    found = generate(folder, "echo", "--tools", folder / "broken.json", "--allow", "test.echo", text=HOSTILE)
    assert (found.returncode, found.stdout) == (0, " Done.\n")
    broken, called_, ended = found.stderr.splitlines()
    assert broken.startswith("slipstream: bad didn't start."), "which leaves the others"
    assert called_ == r'slipstream: test.echo {"text": "Sun\u202eny\u001b[2J"}', "safe for a terminal"
    assert ended == r"slipstream: test.echo done: Sun\u202eny\x1b[2J"


def test_as_json(folder: Path) -> None:
    found = generate(folder, "add", "--tools", folder / "mcp.json", "--allow", "test.add", "--json", a=2, b=40)
    result = json.loads(found.stdout)
    (call,) = result["calls"]
    assert (call["server"], call["tool"], call["state"], call["result"]) == ("test", "add", "done", "42")
    assert json.loads(call["arguments"]) == {"a": 2, "b": 40}
    assert (result["text"], result["finish_reason"]) == (" Done.", "end")
    assert result["completion_tokens"] == len(result["token_ids"]) > 3
    assert "calls" not in json.loads(called("generate", "--prompt", "Hi", "--max-tokens", "4", "--json").stdout)


def test_what_is_not_allowed_is_denied_without_a_terminal(folder: Path) -> None:
    found = generate(folder, "echo", "--tools", folder / "mcp.json", "--allow", "test.add", "--json", text=HOSTILE)
    (call,) = json.loads(found.stdout)["calls"]
    assert (call["state"], call["result"]) == ("denied", "The user denied this call.")
    assert (
        "test.echo was denied because there is no terminal to ask on. To allow it, use --allow test.echo."
        in found.stderr
    )
    assert json.loads(found.stdout)["text"] == " Done.", "the model goes on"


def test_our_own_tools(folder: Path) -> None:
    found = generate(folder, "calculate", "--allow", ".calculate", "--json", expression="2**70 / 3")
    (call,) = json.loads(found.stdout)["calls"]
    assert (call["state"], call["tool"]) == ("done", "calculate")
    assert call["result"].startswith("1180591620717411303424/3")


def test_a_tool_that_fails(folder: Path) -> None:
    found = generate(folder, "read_file", "--allow", ".read_file", "--json", path="/etc/passwd")
    (call,) = json.loads(found.stdout)["calls"]
    assert (found.returncode, call["state"], json.loads(found.stdout)["text"]) == (0, "failed", " Done.")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--allow", ".nothing"], "--allow .nothing: there is no such tool. The tools are: .calculate."),
        (["--raw"], "tools need a chat template"),
    ],
)
def test_wrong_usage(folder: Path, options: list[str], said: str) -> None:
    found = generate(folder, "add", "--allow", ".calculate", *options, a=2, b=40)
    assert (found.returncode, found.stdout) == (2, "")
    assert said in found.stderr


def test_files_without_servers(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("{}", "utf-8")
    for name in ("none.json", "empty.json"):
        found = generate(folder, "add", "--tools", tmp_path / name, a=2, b=40)
        assert found.returncode == 1 and found.stderr.startswith("slipstream: ")


def test_an_answer_may_call_only_so_often(folder: Path, tmp_path: Path) -> None:
    """This model calls for ever, but for the words that follow a refusal."""
    call = FORMATS["hermes"].call.replace(NAME, "calculate").replace(ARGUMENTS, '{"expression": "1"}').replace(" ", "▁")
    template = template_for(FORMATS["hermes"])
    last = "{% if 'No more tools' in messages[-1].content %}<|stop|>{% else %}<|call|>{% endif %}"
    rows = {"<|call|>": {call: 1.0}, "<|stop|>": {"▁yes": 1.0}, call: {"</s>": 1.0}, "▁yes": {"</s>": 1.0}}
    controls = ("<|call|>", "<|stop|>")
    family = Family({"▁yes": 1.0}, {}, rows, controls=controls, words=(call,), template=template + last)
    target = make_thinking_model(tmp_path / "target.gguf", family, context_length=65536)
    found = called("generate", "--target", target, "--prompt", "Go", "--allow", ".calculate", "--json")
    calls = json.loads(found.stdout)["calls"]
    assert [one["state"] for one in calls] == ["done"] * 25 + ["failed"]
    assert json.loads(found.stdout)["text"] == " yes"
    assert "an answer may make at most 25 tool calls" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ('{"expression": "6*7"}', "42"),
        ("{}", "The call lacks expression."),
        ('{"expression": "1", "expression": "2"}', "The arguments are not a JSON object, or have a name twice."),
    ],
)
def test_a_model_on_a_server_calls_our_tools(arguments: str, result: str) -> None:
    function = {"name": "calculate", "arguments": arguments}
    call = chunk({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]})

    def answer(asked: Asked) -> Reply:
        if asked.body["messages"][-1]["role"] != "tool":
            return Reply.stream(call, chunk({}, finish_reason="tool_calls"), DONE)
        return Reply.stream(chunk({"content": "It is it."}), chunk({}, finish_reason="stop"), DONE)

    with ModelServer({**remote_streams.openai(), "/v1/chat/completions": answer}) as server:
        found = called("generate", "--server", server.url, "--prompt", "?", "--allow", ".calculate")
        _, told = server.bodies("/v1/chat/completions")
    assert (found.returncode, found.stdout) == (0, "It is it.\n")
    assert told["messages"][-1] == {"role": "tool", "content": result, "tool_call_id": "c1"}
    assert [one["function"]["name"] for one in told["tools"]] == ["calculate"]


# ------------------------------------------------------------ a terminal


class Terminal:
    """A command in a process of its own, with a real terminal for its questions."""

    def __init__(self, *arguments: str | Path) -> None:
        self._ours, theirs = os.openpty()
        environment = {**os.environ, "PYTHONPATH": python_path()}
        words = [sys.executable, "-m", "app", "generate", *map(str, arguments)]
        self.process = subprocess.Popen(
            words, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, cwd=ROOT, env=environment
        )
        os.close(theirs)
        self.shown = ""

    def until(self, text: str) -> None:
        while text not in self.shown:
            self.shown += os.read(self._ours, 65536).decode()

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> tuple[int, str]:
        """The exit status, and what was written to standard output."""
        assert self.process.stdout is not None
        said = self.process.stdout.read().decode()
        return self.process.wait(), said

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        os.close(self._ours)


@pytest.fixture
def terminal(folder: Path) -> Iterator[Any]:
    opened: list[Terminal] = []

    def open_(tool: str, *options: str, **arguments: Any) -> Terminal:
        target = model(folder, tool, **arguments)
        servers = folder / "mcp.json"
        opened.append(Terminal("--target", target, "--prompt", "now", "--tools", servers, *options))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


QUESTION = "(a)lways during this run: "


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.parametrize(
    ("typed", "state"), [("N", "denied"), *in_proof([("y", "done"), ("always", "done")]), ("x\ny", "done")]
)
def test_it_is_asked_for_on_a_terminal(terminal: Any, typed: str, state: str) -> None:
    asked = terminal("echo", "--json", text=HOSTILE)
    asked.until(QUESTION)
    assert "The model wants to call the tool echo from test:" in asked.shown
    assert r'"text": "Sun\u202eny\u001b[2J"' in asked.shown, "in full, and safe"
    assert "\u202e" not in asked.shown
    asked.type(f"{typed}\n")
    status, said = asked.end()
    assert status == 0
    assert [one["state"] for one in json.loads(said)["calls"]] == [state]


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_ctrl_c_at_the_question(terminal: Any) -> None:
    asked = terminal("echo", text=HOSTILE)
    asked.until(QUESTION)
    asked.process.send_signal(signal.SIGINT)
    assert asked.end() == (130, "")


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_ctrl_c_stops_a_running_tool(terminal: Any, folder: Path) -> None:
    """The server writes that it was canceled."""
    note = folder / "waited"
    os.mkfifo(note)
    asked = terminal("wait", "--allow", "test.wait", file=str(note))
    with note.open("r", encoding="utf-8") as read:
        assert read.readline() == "begun\n"
        asked.process.send_signal(signal.SIGINT)
        assert asked.end() == (130, "")
        assert read.read() == "canceled\n"
