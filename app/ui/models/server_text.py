"""What the server dialog says about an address and a server."""

from __future__ import annotations

import contextlib
import ipaddress
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from app.models.text import printable, visible
from app.protocol.events import PairLoaded
from app.protocol.remote import ModelState, ServedModel, Server
from app.storage.secrets import SecretPlace
from app.ui.engine.pair_names import host_of, server_name
from app.ui.widgets import units

NOT_ENCRYPTED = (
    "The connection to {host} isn't encrypted: anyone on the network in between can read the chat and the key. Use "
    "https, or connect only over a network that you trust."
)
NO_FIGURES = "This server gives no drafting figures."
NONE_FOUND = "No server answers at the usual ports of this computer."
CHOOSE = "Choose one of its models."
_STATES: dict[ModelState, str] = {
    "unloaded": "not loaded",
    "loading": "loading",
    "sleeping": "sleeping",
    "downloading": "downloading",
}
Mood = Literal["plain", "good", "warning", "bad"]


TITLE = "Open a model on a server"
INTRODUCTION = (
    "Chat with a model that another program runs: llama-server, vLLM, SGLang, TensorRT-LLM, TGI, Ollama, LM Studio or "
    "anything else with an API like OpenAI's."
)


@dataclass(frozen=True)
class Verdict:
    """The outcome of a test. ``lines`` say more, one thing each."""

    text: str
    mood: Mood = "plain"
    lines: tuple[str, ...] = ()


def warning(address: str) -> str:
    """Why to be careful with an address, as it was typed so far; empty if there is no reason."""
    address = address.strip()
    if not address:
        return ""
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host = parts.hostname or ""
    except ValueError:
        return ""
    if parts.scheme != "http" or not host or _is_this_computer(host):
        return ""
    return NOT_ENCRYPTED.format(host=printable(host, 120))


def _is_this_computer(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def key_note(place: SecretPlace, *, has_keyring: bool) -> str:
    """Where the key of this server is, or would be."""
    if place == "keyring":
        return "A key for this server is stored in the system's keyring. Type another one to replace it."
    if place == "memory":
        return "A key for this server is kept until Slipstream closes, because this system has no keyring."
    if not has_keyring:
        return "This system has no keyring, so a key is only kept until Slipstream closes."
    return "A key that you enter is stored in the system's keyring, and only sent to this server."


def model_title(model: ServedModel) -> str:
    """A line of the list of models."""
    state = _STATES.get(model.state, "")
    return visible(" · ".join(filter(None, (model.id, state))))


def server_title(server: Server) -> str:
    """A line of the list of servers: ``llama-server · 127.0.0.1:8080 · qwen3.5``."""
    models = [one.id for one in server.models]
    shown = models[0] if len(models) == 1 else f"{len(models):,} models" if models else ""
    shown = "needs a key" if server.needs_key else shown
    return visible(" · ".join(filter(None, (server_name(server), host_of(server.address), shown))))


def found(server: Server, *, is_chosen: bool) -> Verdict:
    """There is a server, whose model isn't known well yet."""
    text = f"✓ {server_name(server)} at {host_of(server.address)}"
    if not server.models:
        return Verdict(text, "warning", ("It has no model at the moment. Load one there, then test again.",))
    if not is_chosen:
        return Verdict(text, "good", (f"It has {len(server.models):,} models. {CHOOSE}",))
    return Verdict(text, "good", ("The model isn't loaded there yet. The server loads it when you open it.",))


def tested(pair: PairLoaded) -> Verdict:
    """The model answers; what it is, and what is known of its drafting."""
    remote = pair.remote
    assert remote is not None
    figures = remote.figures_note or (NO_FIGURES if remote.figures == "none" else "")
    context = f"{units.tokens(pair.context_length)} of context" if pair.context_length else "context length not known"
    return Verdict(
        visible(f"✓ {server_name(remote.server)} at {host_of(remote.server.address)}"),
        "good",
        (
            visible(f"Model: {pair.target.name} · {context}"),
            visible(figures),
        ),
    )
