"""Runs the server according to the settings, with its key from the system's keyring."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

from PySide6.QtCore import QDateTime, QObject, Signal, Slot

from app import words
from app.protocol.serving import RequestEnded, Serve
from app.settings import ServerSettings
from app.storage.secrets import SecretPlace, SecretStore
from app.ui.server.serving import ServerState, Serving
from app.ui.widgets.tasks import Lane
from app.words import printable

KEY_NAME = "API server"
_KEY_BYTES = 32


def needs_key(settings: ServerSettings) -> bool:
    """Whether programs must send the key."""
    return settings.needs_key or settings.for_others


class ServerControl(QObject):
    """One for a window.

    Attributes:
        serving: The server.
        key: The key that programs must send; empty until it is read.
        key_place: Where it is stored.

    Signals:
        key_changed: `key` changed.
    """

    key_changed = Signal()

    def __init__(self, serving: Serving, settings: Callable[[], ServerSettings], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.serving = serving
        self.key = ""
        self.key_place: SecretPlace = "nowhere"
        self._settings = settings
        self._store = SecretStore()
        self._lane = Lane(self, "server key")
        self._in_use: Serve | None = None

    @Slot()
    def apply(self) -> None:
        """Start, restart or stop the server according to the settings."""
        settings = self._settings()
        if not settings.on:
            self._in_use = None
            self.serving.stop()
        elif needs_key(settings) and not self.key:
            self.find_key(self.apply)
        else:
            self._serve(settings)

    def find_key(self, done: Callable[[], object] = lambda: None) -> None:
        """Read the key, or make one if there is none; then call ``done``."""

        def find() -> tuple[str, SecretPlace]:
            if not self._store.get(KEY_NAME):
                self._store.set(KEY_NAME, secrets.token_urlsafe(_KEY_BYTES), replace=False)
            return self._store.get(KEY_NAME) or "", self._store.where(KEY_NAME)

        self._find(find, done)

    @Slot()
    def replace_key(self) -> None:
        """Make a new key; programs need it from now on."""

        def replace() -> tuple[str, SecretPlace]:
            self._store.set(KEY_NAME, secrets.token_urlsafe(_KEY_BYTES))
            return self._store.get(KEY_NAME) or "", self._store.where(KEY_NAME)

        self._find(replace, self.apply)

    def close(self) -> None:
        """Called when the window closes; waits until the server's process is gone."""
        self._lane.close()
        self.serving.close()

    def _find(self, find: Callable[[], tuple[str, SecretPlace]], done: Callable[[], object]) -> None:
        def found(result: tuple[str, SecretPlace]) -> None:
            self.key, self.key_place = result
            self.key_changed.emit()
            done()

        self._lane.submit(find, found)

    def _serve(self, settings: ServerSettings) -> None:
        wanted = Serve(
            host=settings.address if settings.for_others else None,
            port=settings.port,
            key=self.key if needs_key(settings) else None,
            hosts=[name.lower() for name in settings.hosts],
            origins=[origin.lower().rstrip("/") for origin in settings.origins],
        )
        if wanted != self._in_use or self.serving.state.kind == "failed":
            self._in_use = wanted
            self.serving.start(wanted)


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
    """The address to give to programs: ``http://127.0.0.1:8642/v1``."""
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"


def state_sentence(state: ServerState) -> str:
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
    """Examples by language, with `KEY_PLACEHOLDER` for the key."""
    key = KEY_PLACEHOLDER if needs_key else "none"
    return {
        "curl": _CURL.format(url=url, key=_CURL_KEY.format(key=key) if needs_key else ""),
        "Python": _PYTHON.format(url=url, key=key),
        "JavaScript": _JAVASCRIPT.format(url=url, key=key),
    }


def rows_of(records: Iterable[tuple[float, RequestEnded]]) -> list[list[str]]:
    """Time, program, path, tokens of prompt and answer, duration and result of each request, the newest first."""
    return [_row(*one) for one in reversed(list(records))]


def _row(ended_at: float, how: RequestEnded) -> list[str]:
    return [
        QDateTime.fromSecsSinceEpoch(int(ended_at)).toString("HH:mm:ss"),
        words.UNKNOWN if how.client == "?" else printable(how.client, _LONGEST_NAME),
        printable(how.path) or "unknown path",
        f"{words.number(how.prompt_tokens)} + {words.number(how.completion_tokens)}" if how.prompt_tokens else "",
        words.seconds(how.seconds),
        _RESULTS.get(how.status, f"Error {how.status}"),
    ]
