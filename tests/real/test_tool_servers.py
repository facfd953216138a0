"""MCP servers that other people made, and all that the reference server `everything` has, on stdio and over HTTP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.tools.messages import (
    CallEnded,
    CallTool,
    CancelCall,
    GetPrompt,
    ReadResource,
    Reply,
    ServerChanged,
    ServerEntry,
)
from tests.support.real_tool_servers import folder, program
from tests.support.tool_process import Process

pytestmark = pytest.mark.skipif(
    not (folder() / "complete").exists(), reason="python -m tests.support.real_tool_servers installs the servers"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    (made / "notes.txt").write_text("Water the plants.")
    subprocess.run(["git", "init", "--quiet", "-b", "main", made / "project"], check=True)
    (made / "project" / "new.py").write_text("print()\n")
    return made


@pytest.fixture(scope="module")
def web_port(files: Path) -> Iterator[int]:
    """`everything` over streamable HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PORT": str(port)}
    with subprocess.Popen(
        [program("everything"), "streamableHttp"], env=environment, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        assert any("listening" in line for line in server.stderr)
        reader = threading.Thread(target=server.stderr.read)
        reader.start()
        yield port
        server.kill()
        reader.join()


@pytest.fixture(scope="module")
def process(files: Path, web_port: int) -> Iterator[Process]:
    servers: dict[str, dict[str, Any]] = {
        "time": {},
        "fetch": {"args": ["--ignore-robots-txt", "--allow-private-ips"]},
        "git": {"args": ["--repository", str(files / "project")]},
        "sqlite": {"args": ["--db-path", str(files / "data.db")]},
        "everything": {"folders": [str(files)]},
        "filesystem": {"args": [str(files)]},
        "memory": {"env": {"MEMORY_FILE_PATH": str(files / "memory.json")}},
    }
    entries = [ServerEntry(name=name, command=str(program(name)), **more) for name, more in servers.items()]
    web = ServerEntry(name="web", url=f"http://127.0.0.1:{web_port}/mcp", folders=[str(files)])
    with Process() as made:
        made.start([*entries, web])
        yield made


@pytest.fixture
def tools(process: Process) -> Process:
    process.forget()
    return process


def test_all_are_ready(tools: Process) -> None:
    assert {name: (one.state, one.message) for name, one in tools.servers.items()} == dict.fromkeys(
        ("time", "fetch", "git", "sqlite", "everything", "filesystem", "memory", "web"), ("ready", "")
    )
    assert all(one.tools and not one.left_out and one.version for one in tools.servers.values())


def test_time(tools: Process) -> None:
    ended = tools.run(
        "convert_time", "time", source_timezone="Europe/Berlin", time="16:30", target_timezone="Asia/Tokyo"
    )
    assert ended.state == "done"
    assert "T00:30:00+09:00" in ended.text or "T23:30:00+09:00" in ended.text


def test_fetch(tools: Process) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html><body><article><h1>Plants</h1><p>They need <b>water</b>.</p></article></body>")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        ended = tools.run("fetch", "fetch", url=f"http://127.0.0.1:{server.server_port}/", raw=True)
        server.shutdown()
        thread.join()
    assert (ended.state, "They need <b>water</b>." in ended.text) == ("done", True), ended.text


def test_git(tools: Process, files: Path) -> None:
    assert "new.py" in tools.run("git_status", "git", repo_path=str(files / "project")).text


def test_sqlite(tools: Process) -> None:
    assert tools.run("create_table", "sqlite", query="CREATE TABLE plants (name TEXT)").state == "done"
    tools.run("write_query", "sqlite", query="INSERT INTO plants VALUES ('fern')")
    assert "fern" in tools.run("read_query", "sqlite", query="SELECT * FROM plants").text
    assert [one.uri for one in tools.servers["sqlite"].resources] == ["memo://insights"]


def test_filesystem(tools: Process, files: Path) -> None:
    assert tools.run("read_text_file", "filesystem", path=str(files / "notes.txt")).text == "Water the plants."
    outside = tools.run("read_text_file", "filesystem", path="/etc/passwd")
    assert (outside.state, "denied" in outside.text) == ("failed", True)
    hints = {tool.name: tool.approach for tool in tools.servers["filesystem"].tools}
    assert (hints["read_text_file"], hints["write_file"]) == ("read_only", "destructive")


def test_memory(tools: Process) -> None:
    fern = {"name": "fern", "entityType": "plant", "observations": ["green"]}
    tools.run("create_entities", "memory", entities=[fern])
    assert json.loads(tools.run("read_graph", "memory").text)["entities"][0]["name"] == "fern"


# ------------------------------------------------------------ all of everything


@pytest.fixture(params=["everything", "web"])
def server(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_tools(tools: Process, server: str) -> None:
    assert tools.run("get-sum", server, a=19, b=23).text == "The sum of 19 and 23 is 42."
    wrong = tools.run("get-sum", server, a="x")
    assert wrong.state == "failed"


def test_structured_results(tools: Process, server: str) -> None:
    found = json.loads(tools.run("get-structured-content", server, location="Chicago").text)
    assert found.keys() == {"temperature", "conditions", "humidity"}


def test_images_and_resources_in_results(tools: Process, server: str) -> None:
    (image,) = tools.run("get-tiny-image", server).images
    assert (image.media_type, image.data[:4]) == ("image/png", b"\x89PNG")
    assert "[Link to the resource demo://resource/" in tools.run("get-resource-links", server, count=2).text
    embedded = tools.run("get-resource-reference", server, resourceType="Text", resourceId=1).text
    assert "[Resource demo://resource/dynamic/text/1]\nResource 1: This is a plaintext resource" in embedded


def test_progress(tools: Process, server: str) -> None:
    ended = tools.run("trigger-long-running-operation", server, duration=1, steps=4)
    assert ended.state == "done"
    assert [(one.done, one.total) for one in tools.progress][-1][1] == 4


def test_cancelling(tools: Process, server: str) -> None:
    arguments = json.dumps({"duration": 600, "steps": 6000})
    tools.send(CallTool(request=1000, server=server, tool="trigger-long-running-operation", arguments=arguments))
    while not tools.progress:
        tools.receive()
    tools.send(CancelCall(request=1000))
    assert tools.next(CallEnded).state == "stopped"
    assert tools.run("echo", server, message="still there").text == "Echo: still there"


def test_prompts(tools: Process, server: str) -> None:
    assert {one.name for one in tools.servers[server].prompts} >= {"simple-prompt", "args-prompt"}
    tools.send(GetPrompt(request=1100, server=server, name="args-prompt", arguments={"city": "Rome"}))
    assert "Rome" in tools.next(CallEnded).text


def test_resources(tools: Process, server: str) -> None:
    uri = "demo://resource/static/document/features.md"
    assert uri in [one.uri for one in tools.servers[server].resources]
    tools.send(ReadResource(request=1200, server=server, uri=uri))
    ended = tools.next(CallEnded)
    assert (ended.state, len(ended.text) > 1000) == ("done", True)


def test_changed_lists(tools: Process, server: str) -> None:
    text = "data:text/plain;base64,aGVsbG8="
    assert tools.run("gzip-file-as-resource", server, name="hello.gz", data=text).state == "done"
    while not any(one.uri.endswith("hello.gz") for one in tools.servers[server].resources):
        tools.next(ServerChanged)


def test_roots(tools: Process, server: str, files: Path) -> None:
    assert files.as_uri() in tools.run("get-roots-list", server).text


def test_sampling(tools: Process, server: str) -> None:
    tools.replies = [Reply(question=0, action="accept", content={"text": "I am the user."})]
    ended = tools.run("trigger-sampling-request", server, prompt="Who are you?", maxTokens=20)
    assert "I am the user." in ended.text
    assert "Who are you?" in tools.asked[0].message


def test_elicitation(tools: Process, server: str) -> None:
    tools.replies = [Reply(question=0, action="accept", content={"name": "Ada", "integer": 7})]
    ended = tools.run("trigger-elicitation-request", server)
    assert "Ada" in ended.text
    assert tools.asked[0].fields["required"] == ["name"]
    tools.replies = [Reply(question=0, action="cancel")]
    assert "cancel" in tools.run("trigger-elicitation-request", server).text
