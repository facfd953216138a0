"""What real servers answered (``tests/data/servers``), to be played by `ModelServer`. ``scripts/real-servers`` asks the
same again and fails if the shape is another; with ``-- --record`` it writes the files anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app.protocol.remote import ServerKind
from app.remote.connecting import DIALECTS
from tests.support.live_servers import LiveServer
from tests.support.model_server import Answer, Reply

Json = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "data" / "servers"
_CHAT, _METRICS = "/v1/chat/completions", "/metrics"
_ASKED = [{"role": "user", "content": "Say this again: one two three four one two three four one two three four."}]
_LISTS = {"vllm": ("/v1/models", "/version"), "llama.cpp": ("/v1/models", "/props")}
_COUNTERS = ("vllm:spec_decode", "vllm:num_requests_running", "vllm:generation_tokens_total", "llamacpp:")
_TOO_LONG = [{"role": "user", "content": "word " * 6000}]
_REFUSED: dict[str, Json] = {
    "too long": {"messages": _TOO_LONG},
    "min-p": {"messages": _ASKED, "min_p": 0.05, "max_tokens": 1},
    "temperature": {"messages": _ASKED, "temperature": 2.5, "max_tokens": 1},
    "length": {"messages": _ASKED, "max_tokens": 10_000},
}


def place(kind: ServerKind, state: str) -> Path:
    """The file; ``state``: drafting, plain or keyed."""
    return FOLDER / f"{kind}-{state}.json"


def record(server: LiveServer) -> Json:
    """Ask a live server. Nothing of the machine is in the result."""
    dialect = DIALECTS[server.product.kind]
    body: Json = {"messages": _ASKED, "stream": True, "stream_options": dialect.stream_options, **dialect.extras}
    body |= {"temperature": 0.0, "seed": 7, "max_tokens": 30}
    before = _counters(server)
    stream = server.chat(**body)
    found: Json = {
        "server": f"{dialect.name} ({server.product.folder.name}), SmolLM2-135M-Instruct (Apache-2.0)",
        "headers": {"Server": stream.headers["Server"]} if "Server" in stream.headers else {},
        "before": before,
        "stream": [line.removeprefix("data: ") for line in stream.text.splitlines() if line],
        "after": _counters(server),
    }
    for path in _LISTS[server.product.kind]:
        found[path] = server.request("GET", path).json()
    found["/tokenize"] = server.request("POST", "/tokenize", {"model": server.product.model, "messages": _ASKED}).json()
    for name, asked in _REFUSED.items():
        answer = server.chat(**asked)
        if answer.status_code != 200:
            found[name] = [answer.status_code, answer.json()]
    folder = str(server.product.folder.parent)
    text = json.dumps(found, ensure_ascii=False).replace(folder, "…").replace(str(Path.home()), "…")
    anonymous: Json = json.loads(text)
    return anonymous


def _counters(server: LiveServer) -> list[str]:
    return [line for line in server.request("GET", _METRICS).text.splitlines() if line.startswith(_COUNTERS)]


def routes(recording: Json) -> dict[str, Answer]:
    """For `ModelServer`: a chat is answered as it was, the counters are those before it until then."""
    counters = {name: Reply(["\n".join(recording[name]).encode()], 200) for name in ("before", "after")}
    told = ["before"]

    def chat(asked: Any) -> Reply:
        told.append("after")
        return Reply.stream(*(f"data: {line}\n\n".encode() for line in recording["stream"]))

    found: dict[str, Answer] = {path: Reply.of(one) for path, one in recording.items() if path.startswith("/")}
    found["/v1/models"] = Reply.of(recording["/v1/models"], **recording["headers"])
    return {**found, _CHAT: chat, _METRICS: lambda asked: counters[told[-1]]}


def shape(value: object, name: str = "") -> set[str]:
    """The fields of JSON, with their types: what a server may not change without our noticing."""
    if isinstance(value, dict):
        return {one for key, inner in value.items() for one in shape(inner, f"{name}.{key}")}
    if isinstance(value, list):
        return {one for inner in value for one in shape(inner, f"{name}[]")}
    if name in (".stream[]", ".before[]", ".after[]") and isinstance(value, str):
        if name == ".stream[]":
            return shape(json.loads(value), name) if value.startswith("{") else {value}
        return {value.partition("{")[0].partition(" ")[0]}
    return {f"{name}: {'number' if isinstance(value, int | float) else type(value).__name__}"}
