"""Options for a model on a server instead of in files, and for a second server to compare with."""

from __future__ import annotations

import argparse
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import msgspec

from app import system, words
from app.client.process import EngineProcess
from app.commands.options import saved_settings
from app.commands.output import tell, wrong_usage
from app.compare.steps import Engine
from app.protocol.commands import Generate, ScoreTokens
from app.protocol.events import (
    GenerationFinished,
    GenerationStarted,
    PairLoaded,
    PromptProgressed,
    Round,
    TokensScored,
)
from app.protocol.remote import MAX_KEY_CHARACTERS, SERVER_NAMES, Connect
from app.system import KnownError
from app.words import printable

_LOCAL = ("target", "starter", "draft", "mmproj", "chat_template")


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """``server``, ``api_key_file`` and ``model``."""
    group = parser.add_argument_group("a model on a server, instead of files")
    group.add_argument(
        "--server", metavar="URL", help="address of llama-server, vLLM, SGLang, Ollama or any server with OpenAI's API"
    )
    group.add_argument("--api-key-file", type=Path, metavar="FILE", help="file with the server's key")
    group.add_argument(
        "--model", metavar="ID", help="one of the server's models (default: the loaded one or the first)"
    )


def connect_command(options: argparse.Namespace) -> Connect | None:
    """What to connect to; ``None`` without ``--server``. Exits with a message for wrong usage. Raises `KnownError`."""
    if getattr(options, "server", None) is None:
        for name in ("api_key_file", "model"):
            if getattr(options, name, None) is not None:
                wrong_usage(f"--{name.replace('_', '-')} needs --server")
        return None
    for name in _LOCAL:
        if getattr(options, name, None) is not None:
            option = name.replace("_", "-")
            wrong_usage(f"--{option} is for files on this computer, and can't be used with --server")
    key = _key_in(options.api_key_file) if options.api_key_file else ""
    offline = saved_settings().offline
    return Connect(request=0, address=options.server, key=key, model=options.model or "", loopback_only=offline)


def _key_in(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            key = file.read(MAX_KEY_CHARACTERS + 1).strip()
    except OSError as error:
        raise KnownError(f"The key file {path} can't be read: {error.strerror or error}.") from error
    if not key or len(key) > MAX_KEY_CHARACTERS:
        raise KnownError(f"The key file {path} has to contain the key and nothing else.")
    return key


def show_server(pair: PairLoaded) -> None:
    """Warn if others could read what is sent."""
    if pair.remote is None:
        return
    server = pair.remote.server
    if not (server.is_loopback or server.is_encrypted):
        name = SERVER_NAMES[server.kind]
        tell(f"The connection to {name} isn't encrypted. Others in the network can read the prompt and the key.")


@contextlib.contextmanager
def comparing(
    options: argparse.Namespace, engine: EngineProcess, pair: PairLoaded
) -> Iterator[tuple[Engine, PairLoaded | None]]:
    """``engine``, combined with a second one if its server can't turn drafting off; and that one's model. Raises
    `KnownError`.
    """
    command = connect_command(options)
    if pair.remote is None or command is None:
        yield engine, None
    elif options.plain_server is not None:
        with _canceled_with(EngineProcess(command=system.remote_command())) as plain:
            other = plain.load(msgspec.structs.replace(command, address=options.plain_server, model=""))
            tell(*differences(pair, other))
            yield TwoServers(engine, plain), other
    elif pair.remote.can_switch_drafting:
        yield engine, None
    else:
        raise KnownError(
            f"{SERVER_NAMES[pair.remote.server.kind]} can't switch drafting off for a single answer. Start the same "
            "model on a second server without a draft, and name that one with --plain-server."
        )


class TwoServers:
    """Sends requests without a draft to ``without``, and all others to ``drafting``."""

    def __init__(self, drafting: EngineProcess, without: EngineProcess) -> None:
        self._drafting = drafting
        self._without = without

    def generate(
        self, command: Generate
    ) -> Iterator[GenerationStarted | PromptProgressed | Round | GenerationFinished]:
        if command.draft_length == 0:
            return self._without.generate(command)
        return self._drafting.generate(command)

    def score_tokens(self, command: ScoreTokens) -> TokensScored:
        """Raises `KnownError`: servers have no tokens to score."""
        return self._drafting.score_tokens(command)


def differences(pair: PairLoaded, without: PairLoaded) -> list[str]:
    """Signs that the two servers have different models, in sentences for the user."""
    found = []
    theirs = [f"“{printable(one.target.name, 120)}”" for one in (without, pair)]
    if theirs[0] != theirs[1]:
        found.append(f"The models have different names: {theirs[0]} without a draft, {theirs[1]} with a draft.")
    lengths = without.context_length, pair.context_length
    if all(lengths) and lengths[0] != lengths[1]:
        found.append(
            f"The context lengths differ: {words.number(lengths[0])} tokens without a draft, "
            f"{words.number(lengths[1])} with a draft."
        )
    return found


@contextlib.contextmanager
def _canceled_with(process: EngineProcess) -> Iterator[EngineProcess]:
    """A second process that Ctrl+C cancels together with the first."""
    before = signal.getsignal(signal.SIGINT)

    def cancel(number: int, frame: FrameType | None) -> None:
        process.cancel()
        if callable(before):
            before(number, frame)

    with process:
        signal.signal(signal.SIGINT, cancel)
        try:
            yield process
        finally:
            signal.signal(signal.SIGINT, before)
