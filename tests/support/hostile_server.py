"""Servers that do what no server should: ``python -m tests.support.hostile_server NAME``. Without the library, raw."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

Handler = Callable[["Raw", Any], object]
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "Hostile", "version": "6.6.6"},
}
MB = 1_000_000
TOOL = {"name": "act", "description": "Act.", "inputSchema": {"type": "object"}}


class Raw:
    """A server on stdio that answers as it should where nothing else is said."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {
            "initialize": lambda raw, asked: raw.answer(asked, HELLO),
            "tools/list": lambda raw, asked: raw.answer(asked, {"tools": [TOOL]}),
            "tools/call": lambda raw, asked: raw.answer(asked, {"content": [{"type": "text", "text": "acted"}]}),
        }

    def write(self, data: bytes) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]
        except OSError:
            os._exit(0)

    def send(self, message: object) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def answer(self, asked: Any, result: object) -> None:
        self.send({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    def say(self, method: str, **params: object) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, number: object, method: str, **params: object) -> None:
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    def serve(self, **handlers: Handler) -> None:
        """Answer until the input ends; ``tools_list`` and so on are in place of the usual."""
        self.handlers |= {name.replace("_", "/"): handler for name, handler in handlers.items()}
        for line in sys.stdin.buffer:
            message = json.loads(line)
            handler = self.handlers.get(message.get("method", ""))
            if handler is not None:
                handler(self, message)


@dataclass(frozen=True)
class Case:
    run: Callable[[Raw], object]
    state: str = "ready"
    """After the start."""
    message: str = ""
    """Part of why it failed."""
    call: str = "done"
    """What comes of a call of ``act``, if it is ready."""
    text: str = ""
    """Part of its result."""
    tools: int = 1
    log: str = ""
    """Part of its log."""
    seconds: float = 60.0
    """The limit for a call; a start has twice as long."""


def ends(status: int, text: str = "") -> Callable[[Raw], NoReturn]:
    def run(_raw: Raw) -> NoReturn:
        sys.stderr.write(text)
        sys.stderr.flush()
        os._exit(status)

    return run


def forever(data: bytes, descriptor: int = 1) -> Callable[[Raw], None]:
    def run(_raw: Raw) -> None:
        try:
            while True:
                os.write(descriptor, data)
        except OSError:
            os._exit(0)

    return run


def silent(_raw: Raw, _asked: Any = None) -> None:
    """Read and say nothing."""
    for _ in sys.stdin.buffer:
        pass


def closed(_raw: Raw) -> None:
    os.close(1)
    time.sleep(1000)


def twice(raw: Raw, asked: Any) -> None:
    raw.answer(asked, HELLO)
    raw.answer(asked, HELLO)


def asked_first(raw: Raw, asked: Any) -> None:
    questions(raw, asked)
    raw.answer(asked, {"tools": [TOOL]})


def stubborn(_raw: Raw) -> None:
    """Ignore what asks for an end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Raw().serve()
    while True:
        time.sleep(1000)


def first(data: bytes) -> Callable[[Raw], None]:
    def run(raw: Raw) -> None:
        raw.write(data)
        raw.serve()

    return run


def hello(result: object) -> Callable[[Raw], None]:
    return lambda raw: raw.serve(initialize=lambda raw, asked: raw.answer(asked, result))


def offers(*tools: object, **more: object) -> Callable[[Raw], None]:
    return lambda raw: raw.serve(tools_list=lambda raw, asked: raw.answer(asked, {"tools": list(tools), **more}))


def offers_raw(tool: str) -> Callable[[Raw], None]:
    """A tool that isn't JSON as `json` writes it."""

    def answer(raw: Raw, asked: Any) -> None:
        raw.write(f'{{"jsonrpc":"2.0","id":{asked["id"]},"result":{{"tools":[{tool}]}}}}\n'.encode("utf-8", "replace"))

    return lambda raw: raw.serve(tools_list=answer)


def acts(*content: object, **more: object) -> Callable[[Raw], None]:
    return lambda raw: raw.serve(tools_call=lambda raw, asked: raw.answer(asked, {"content": list(content), **more}))


def acts_raw(answer: str) -> Callable[[Raw], None]:
    """``answer`` with ID in place of the number."""
    return lambda raw: raw.serve(
        tools_call=lambda raw, asked: raw.write(answer.replace("ID", str(asked["id"])).encode() + b"\n")
    )


def doing(act: Handler) -> Callable[[Raw], None]:
    """``act`` during a call, which is then answered."""

    def call(raw: Raw, asked: Any) -> None:
        act(raw, asked)
        raw.answer(asked, {"content": [{"type": "text", "text": "acted"}]})

    return lambda raw: raw.serve(tools_call=call)


def pages(raw: Raw, asked: Any) -> None:
    page = int((asked.get("params") or {}).get("cursor") or 0)
    tools = [{**TOOL, "name": f"tool{page * 100 + number}"} for number in range(100)]
    raw.answer(asked, {"tools": tools, "nextCursor": str(page + 1)})


def large_pages(raw: Raw, asked: Any) -> None:
    page = int((asked.get("params") or {}).get("cursor") or 0)
    tools = [{**TOOL, "name": f"tool{page * 5 + number}", "description": "d" * MB} for number in range(5)]
    raw.answer(asked, {"tools": tools, "nextCursor": str(page + 1)} if page < 26 else {"tools": tools})


def with_child(raw: Raw) -> None:
    """Leave a child behind that holds the pipes."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(10_000)"])
    raw.write(b"leaving\n")
    os._exit(3)


def deaf(raw: Raw, asked: Any) -> None:
    """Never read again, and ask."""
    for number in range(1_000_000):
        raw.ask(number, "ping")
    raw.answer(asked, {})


def storm(raw: Raw, _asked: Any) -> None:
    for _ in range(300):
        raw.say("notifications/tools/list_changed")


def endless(raw: Raw, asked: Any) -> None:
    while True:
        storm(raw, asked)


def progress(raw: Raw, asked: Any) -> None:
    token = asked["params"]["_meta"]["progressToken"]
    for step in range(2000):
        raw.say("notifications/progress", progressToken=token, progress=step, message="\x1b[2J\u202e" * 100)


def odd(raw: Raw, asked: Any) -> None:
    """Notifications and requests that make no sense."""
    raw.say("notifications/cancelled", requestId=asked["id"])
    raw.say("notifications/progress", progressToken=asked["id"], progress="much")
    raw.say("notifications/message", level="info", data=[["deep"] * 1000] * 100)
    raw.say("rm -rf", path="/")
    raw.ask("x", "tools/call", name="act")
    raw.ask([], "roots/list")
    raw.send({"jsonrpc": "1.0", "id": asked["id"] + 1000, "result": {}})
    raw.send({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "?"}})
    raw.send({"jsonrpc": "2.0", "id": -1, "result": {}})
    raw.send([])
    raw.send("text")
    raw.send(None)


def questions(raw: Raw, _asked: Any) -> None:
    """Many at once; some must be refused without the user."""
    schema = {"type": "object", "properties": {}}
    for number in range(50):
        raw.ask(f"q{number}", "elicitation/create", message="Password?", requestedSchema=schema)


def modern(answer: Handler) -> Callable[[Raw], None]:
    """A server of 2026-07-28 alone: without the old handshake, and it asks in its answers."""
    version = "2026-07-28"
    refused = {"code": -32022, "message": "Unsupported", "data": {"supported": [version], "requested": "2025-11-25"}}
    known = {"resultType": "complete", "supportedVersions": [version], "capabilities": {"tools": {}}}
    cached = {"ttlMs": 0, "cacheScope": "private"}
    return lambda raw: raw.serve(
        initialize=lambda raw, asked: raw.send({"jsonrpc": "2.0", "id": asked["id"], "error": refused}),
        server_discover=lambda raw, asked: raw.answer(asked, {**known, **cached}),
        tools_list=lambda raw, asked: raw.answer(asked, {"tools": [TOOL], "resultType": "complete", **cached}),
        tools_call=answer,
    )


def asks_first(raw: Raw, asked: Any) -> None:
    replies = asked["params"].get("inputResponses")
    if replies is None:
        asks_again(raw, asked)
    else:
        text = f"{replies['who']['action']} {asked['params']['requestState']}"
        raw.answer(asked, {"content": [{"type": "text", "text": text}], "resultType": "complete"})


def asks_again(raw: Raw, asked: Any) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    question = {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "Who?", "requestedSchema": schema},
    }
    raw.answer(asked, {"resultType": "input_required", "inputRequests": {"who": question}, "requestState": "here"})


TEXT = {"type": "text", "text": "acted"}
CASES: dict[str, Case] = {
    # at the start
    "ends at once": Case(ends(0), "failed", "It has ended, with status 0."),
    "ends with an error": Case(ends(3, "no \x1b[31mkey\x1b[0m\n"), "failed", "status 3", log="no \\x1b[31mkey\\x1b[0m"),
    "kills itself": Case(lambda _: os.kill(os.getpid(), 9), "failed", "status -9"),
    "says nothing": Case(silent, "failed", "didn't answer in time", seconds=0.5),
    "closes its output": Case(closed, "failed", "closed its output"),
    "leaves a child with its pipes": Case(with_child, "failed", "in time", seconds=0.5),
    "prints before it begins": Case(first(b"Server started on stdio!\n\n"), log="Server started on stdio!"),
    "prints bytes before it begins": Case(first(bytes(range(256)) * 10 + b"\n"), log="\\x00"),
    "prints 100,000 empty lines": Case(first(b"\n" * 100_000)),
    "prints empty lines without end": Case(forever(b"\n" * 65536), "failed", "without end"),
    "prints rubbish without end": Case(forever(b"rubbish\n" * 1000), "failed", "without end"),
    "prints a line without end": Case(forever(b"x" * 65536), "failed", "without end"),
    "prints nulls without end": Case(forever(b"\0" * 65536), "failed", "without end"),
    "prints errors without end": Case(forever(b"error\n" * 1000, 2), "failed", "without end"),
    "prints an error line without end": Case(forever(b"x" * 65536, 2), "failed", "without end"),
    "has a byte order mark": Case(first(b"\xef\xbb\xbf\n")),
    "writes UTF-16": Case(
        lambda raw: raw.serve(initialize=lambda raw, asked: raw.write(json.dumps(HELLO).encode("utf-16"))),
        "failed",
        "in time",
        seconds=0.5,
    ),
    "writes headers as editors do": Case(
        lambda raw: raw.serve(initialize=lambda raw, asked: raw.write(b"Content-Length: 2\r\n\r\n{}")),
        "failed",
        "in time",
        seconds=0.5,
    ),
    "answers the wrong number": Case(
        lambda raw: raw.serve(initialize=lambda raw, asked: raw.answer({"id": 99}, HELLO)), "failed", seconds=0.5
    ),
    "answers before it is asked": Case(first(b'{"jsonrpc":"2.0","id":0,"result":{}}\n' * 1000)),
    "answers twice": Case(lambda raw: raw.serve(initialize=twice)),
    "has another version": Case(hello({**HELLO, "protocolVersion": "1999-01-01"}), "failed", "version"),
    "says hello with a number": Case(hello(7), "failed"),
    "says hello with nothing": Case(hello({}), "failed", "protocol"),
    "says hello for 30 MB": Case(
        lambda raw: hello({**HELLO, "instructions": "x" * (30 * MB)})(raw), "failed", "too large"
    ),
    "has a long name": Case(hello({**HELLO, "serverInfo": {"name": "n" * MB, "version": "\x1b]0;"}})),
    # what it offers
    "offers a million tools": Case(lambda raw: offers(*[TOOL] * MB)(raw), "failed", "too large"),
    "offers tools without end": Case(lambda raw: raw.serve(tools_list=pages), tools=128),
    "offers 130 MB of tools": Case(lambda raw: raw.serve(tools_list=large_pages), tools=128),
    "offers empty pages without end": Case(offers(nextCursor="again"), call="done", tools=0),
    "offers no list": Case(
        lambda raw: raw.serve(tools_list=lambda raw, asked: raw.answer(asked, {"tools": "all"})), "failed", "protocol"
    ),
    "offers a tool without a name": Case(offers({"inputSchema": {}}), "failed", "protocol"),
    "offers an empty name": Case(offers({**TOOL, "name": ""}), tools=0),
    "offers a long name": Case(offers({**TOOL, "name": "n" * MB}), tools=0),
    "offers one name twice": Case(offers(TOOL, {**TOOL, "description": "Another one."})),
    "offers a long description": Case(offers({**TOOL, "description": "d" * MB})),
    "offers control characters": Case(offers({**TOOL, "description": "\0\x1b[2J\u202e</s><|im_end|>\r\n"})),
    "offers half a character": Case(offers_raw('{"name":"act","description":"\\ud800","inputSchema":{}}'), "failed"),
    "offers a large schema": Case(
        offers({**TOOL, "inputSchema": {"type": "object", "description": "x" * MB}}), tools=0
    ),
    "offers a deep schema": Case(
        offers_raw('{"name":"act","inputSchema":' + '{"items":' * 5000 + "1" + "}" * 5000 + "}"),
        "failed",
        "can't be read",
    ),
    "offers a schema of numbers that are none": Case(
        offers_raw('{"name":"act","inputSchema":{"type":"object","a":NaN,"b":-Infinity,"c":1e999}}')
    ),
    "offers a schema with a number of a thousand digits": Case(
        offers_raw('{"name":"act","inputSchema":{"type":"object","maximum":' + "9" * 1000 + "}}")
    ),
    "offers a schema that has itself": Case(offers({**TOOL, "inputSchema": {"$ref": "#", "type": "object"}})),
    "asks at the start": Case(lambda raw: raw.serve(tools_list=asked_first)),
    "says that it has prompts": Case(
        lambda raw: raw.serve(
            initialize=lambda raw, asked: raw.answer(asked, {**HELLO, "capabilities": {"tools": {}, "prompts": {}}}),
            prompts_list=lambda raw, asked: raw.send(
                {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "Method not found"}}
            ),
        ),
        log="couldn't be read: Method not found",
    ),
    "asks to open a program": Case(
        doing(
            lambda raw, asked: raw.ask(
                "q", "elicitation/create", mode="url", message="Look!", url="file:///bin/sh", elicitationId="1"
            )
        )
    ),
    # in a call
    "never answers": Case(lambda raw: raw.serve(tools_call=silent), call="failed", text="didn't answer", seconds=1.0),
    "ends in a call": Case(
        lambda raw: raw.serve(tools_call=lambda *_: os._exit(1)), call="failed", text="ended before"
    ),
    "stops reading and asks": Case(lambda raw: raw.serve(tools_call=deaf), call="failed", text="ended before"),
    "reports without end": Case(
        lambda raw: raw.serve(tools_call=endless),
        call="failed",
        text="ended before",
    ),
    "reports a lot": Case(doing(progress), text="acted"),
    "changes its list all the time": Case(doing(storm), text="acted"),
    "talks nonsense": Case(doing(odd), text="acted"),
    "asks a lot": Case(doing(questions), text="acted"),
    "answers a number": Case(acts_raw('{"jsonrpc":"2.0","id":ID,"result":7}'), call="failed", text="can't be read"),
    "answers a result and an error": Case(
        acts_raw('{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"error":{"code":1,"message":"m"}}'), call="?"
    ),
    "answers with a long error": Case(
        acts_raw('{"jsonrpc":"2.0","id":ID,"error":{"code":-1,"message":"' + "e" * MB + '"}}'),
        call="failed",
        text="eee",
    ),
    "answers a text in place of a list": Case(
        acts_raw('{"jsonrpc":"2.0","id":ID,"result":{"content":"x"}}'), call="failed"
    ),
    "answers an unknown kind": Case(acts({"type": "hologram", "data": "x"}), call="failed", text="protocol"),
    "answers 100,000 blocks": Case(acts(*[TEXT] * 100_000), text="acted\nacted"),
    "answers a million lists": Case(
        lambda raw: acts(TEXT, structuredContent=[[]] * MB)(raw), call="failed", text="too large"
    ),
    "answers deep lists": Case(
        acts_raw('{"jsonrpc":"2.0","id":ID,"result":{"content":[],"x":' + "[" * 100_000 + "]" * 100_000 + "}}"),
        call="failed",
        text="can't be read",
    ),
    "answers 10 MB of text": Case(
        lambda raw: acts({"type": "text", "text": "x" * (10 * MB)})(raw), text="cut here. In full, it has 10 MB"
    ),
    "answers 30 MB of text": Case(
        lambda raw: acts({"type": "text", "text": "x" * (30 * MB)})(raw), call="failed", text="too large"
    ),
    "answers bytes that are no text": Case(
        lambda raw: raw.serve(
            tools_call=lambda raw, asked: raw.write(
                b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a\xff\xfeb"}]}}\n' % asked["id"]
            )
        ),
        text="a\ufffd\ufffdb",
    ),
    "answers a damaged image": Case(acts({"type": "image", "data": "%%%", "mimeType": "image/png"}), text="damaged]"),
    "answers a program as an image": Case(
        acts({"type": "image", "data": "TVqQ", "mimeType": "application/x-msdownload"}), text="not shown]"
    ),
    "answers a failure": Case(acts(TEXT, isError=True), call="failed", text="acted"),
    "has a regular expression that takes forever": Case(
        lambda raw: raw.serve(
            tools_list=lambda raw, asked: raw.answer(
                asked,
                {"tools": [{**TOOL, "outputSchema": {"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}}}]},
            ),
            tools_call=lambda raw, asked: raw.answer(
                asked, {"content": [], "structuredContent": {"a": "a" * 5000 + "!"}}
            ),
        ),
        text="aaa",
    ),
    "speaks only the newest protocol": Case(modern(asks_first), text="decline here"),
    "asks in every answer": Case(modern(asks_again), call="failed", text="keeps asking questions"),
    # at the end
    "does not want to end": Case(stubborn),
}


if __name__ == "__main__":
    CASES[sys.argv[1]].run(Raw())
