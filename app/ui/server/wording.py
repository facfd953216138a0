"""What the window says about the server: its addresses, examples for other programs, and how requests went."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QDateTime

from app import words
from app.models.text import printable
from app.ui.server.serving import EndedRequest, ServerState

KEY_PLACEHOLDER = "YOUR_KEY"
_LONGEST_NAME = 40
_RESULTS = {
    0: "Not finished",
    200: "OK",
    400: "Invalid request",
    401: "Missing or wrong key",
    403: "Not allowed",
    404: "Unknown path",
    413: "Too large",
    415: "Not JSON",
    429: "Too many requests",
    501: "Not supported",
    503: "Model not available",
}
_CURL = """curl {url}/chat/completions \\
  -H "Content-Type: application/json" \\
{key}  -d '{{"messages": [{{"role": "user", "content": "Hello"}}]}}'"""
_CURL_KEY = '  -H "Authorization: Bearer {key}" \\\n'
_PYTHON = """from openai import OpenAI

client = OpenAI(base_url="{url}", api_key="{key}")
answer = client.chat.completions.create(
    model="any", messages=[{{"role": "user", "content": "Hello"}}]
)
print(answer.choices[0].message.content)"""
_JAVASCRIPT = """import OpenAI from "openai";

const client = new OpenAI({{ baseURL: "{url}", apiKey: "{key}" }});
const answer = await client.chat.completions.create({{
  model: "any", messages: [{{ role: "user", content: "Hello" }}],
}});
console.log(answer.choices[0].message.content);"""


def base_url(host: str, port: int) -> str:
    """What programs are given: ``http://127.0.0.1:8642/v1``."""
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"


def state_sentence(state: ServerState) -> str:
    """What the server does now."""
    match state.kind:
        case "off":
            return "Off. No other program can use the model."
        case "starting":
            return "Starting…"
        case "failed":
            return state.message
    hosts = list(dict.fromkeys(_place(host) for host, _ in state.addresses))
    return f"Listening on port {state.addresses[0][1]} of {' and '.join(hosts)}."


def _place(host: str) -> str:
    return "all addresses of this computer" if host in ("0.0.0.0", "::") else host


def examples(url: str, *, needs_key: bool) -> dict[str, str]:
    """By language, with `KEY_PLACEHOLDER` where a key is needed."""
    key = KEY_PLACEHOLDER if needs_key else "none"
    return {
        "curl": _CURL.format(url=url, key=_CURL_KEY.format(key=key) if needs_key else ""),
        "Python": _PYTHON.format(url=url, key=key),
        "JavaScript": _JAVASCRIPT.format(url=url, key=key),
    }


def rows_of(records: Iterable[EndedRequest]) -> list[list[str]]:
    """Time, program, path, tokens of prompt and answer, duration and result of each request, the newest first."""
    return [_row(one) for one in reversed(list(records))]


def _row(request: EndedRequest) -> list[str]:
    how = request.how
    return [
        QDateTime.fromSecsSinceEpoch(int(request.at)).toString("HH:mm:ss"),
        words.UNKNOWN if how.client == "?" else printable(how.client, _LONGEST_NAME),
        printable(how.path) or "unknown path",
        f"{words.number(how.prompt_tokens)} + {words.number(how.completion_tokens)}" if how.prompt_tokens else "",
        words.seconds(how.seconds),
        _RESULTS.get(how.status, f"Error {how.status}"),
    ]
