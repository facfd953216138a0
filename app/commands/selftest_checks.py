"""What ``slipstream selftest`` looks at. A check returns what it found, in a few words, or raises what is wrong."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from app import __version__, paths, program
from app.client.process import EngineEndedError, EngineProcess
from app.client.state import ExitCause
from app.commands import own_process
from app.errors import KnownError
from app.protocol.messages import (
    Figures,
    Generate,
    GenerationFinished,
    Load,
    LoadSettings,
    Message,
    Round,
    Sampling,
)

ENGINE_SECONDS = 60.0
WINDOW_SECONDS = 60.0
KEYRING_SECONDS = 5.0
"""A working machine needs a tenth of these; nothing may wait for ever."""
_QUESTION = "What is speculative decoding?"
_SAMPLING = Sampling(temperature=0.8)
_SEED = 1
_DRAFT_LENGTH = 5
_MAX_TOKENS = 96


class Workplace(NamedTuple):
    """Where a check may write."""

    folder: Path | None
    """Empty and the check's own; ``None``: there is no such place."""

    def home(self) -> Path:
        """Raises `KnownError` where there is no place to write."""
        if self.folder is None:
            raise KnownError(
                "Neither the folder for temporary files nor Slipstream's cache folder can be written, so this could "
                "not be tried."
            )
        return self.folder


class Check(NamedTuple):
    """One line of the report."""

    name: str
    run: Callable[[Workplace], str]


# ---------------------------------------------------------------- the program


def _program(_: Workplace) -> str:
    origin = "packaged" if program.is_frozen() else "from source"
    return f"Slipstream {__version__} {origin}, Python {platform.python_version()}, {platform.platform()}"


def _resources(_: Workplace) -> str:
    from app.compare import prompts
    from app.models.hub.catalog import load_catalog

    icons = sorted(paths.resource("icons").glob("*.svg"))
    if not any(icon.stem == "slipstream" for icon in icons):
        raise KnownError("The icons are not part of this copy.")
    for icon in icons:
        if b"</svg>" not in icon.read_bytes():
            raise KnownError(f"The icon {icon.name} is damaged. Install Slipstream again.")
    pairs = len(load_catalog().pairs)
    asked = len(prompts.bundled()) + len(prompts.read(paths.resource("bench", "prompts.txt")))
    size = _check_guide(paths.resource("guide"))
    if not paths.licences().is_file():
        raise KnownError("The texts of the licences are not part of this copy.")
    return f"{len(icons)} icons, {pairs} recommended pairs, {asked} prompts, licences, {size / 1e6:.0f} MB of the guide"


class _GuideFile(msgspec.Struct):
    name: str
    sha256: str


class _Provenance(msgspec.Struct):
    files: dict[str, _GuideFile]


def _check_guide(folder: Path) -> int:
    """Compares the guide's files with the hashes it was released with; returns their bytes. Raises `KnownError`."""
    total = 0
    for file in msgspec.json.decode((folder / "PROVENANCE.json").read_bytes(), type=_Provenance).files.values():
        content = (folder / file.name).read_bytes()
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise KnownError(f"{file.name} is damaged: it is not the file this version came with. Install it again.")
        total += len(content)
    return total


# ---------------------------------------------------------------- the engine


def _engine(work: Workplace) -> str:
    with _engine_at(work) as engine:
        hello = engine.hello()
    devices = ", ".join(device.description for device in hello.devices)
    features = " ".join(hello.processor_features)
    return f"{hello.engine} on {devices or 'the processor'}; instruction sets: {features or 'not told'}"


def _guide(work: Workplace) -> str:
    """One seed must give one answer, with and without a draft."""
    guide = paths.resource("guide")
    files = str(guide / "guide-target.gguf"), str(guide / "guide-draft.gguf")
    with _engine_at(work) as engine:
        pair = engine.load(Load(request=0, target=files[0], draft=files[1], settings=LoadSettings(chat_cache_mib=0)))
        if pair.draft_refused is not None:
            raise KnownError(f"The draft is not used. {pair.draft_refused}")
        plain, plain_figures = _answer(engine, 0)
        drafted, figures = _answer(engine, _DRAFT_LENGTH)
    if plain != drafted:
        place = next((i for i, pair in enumerate(zip(plain, drafted, strict=False)) if pair[0] != pair[1]), len(plain))
        raise KnownError(f"With one seed the drafted answer differs from the plain one, from token {place + 1} on.")
    if not figures.draft.accepted:
        raise KnownError(f"Of {figures.draft.tested} guesses of the draft none was kept.")
    return (
        f"{len(plain)} tokens, the same plain ({_speed(plain_figures)}) and drafted ({_speed(figures)}); "
        f"{figures.draft.accepted} of {figures.draft.tested} guesses kept"
    )


@contextlib.contextmanager
def _engine_at(work: Workplace) -> Iterator[EngineProcess]:
    """An engine with a home of its own. Raises `KnownError` with the most telling line where it comes to a bad end."""
    try:
        with EngineProcess(limit_seconds=ENGINE_SECONDS, **{paths.HOME_VARIABLE: str(work.home())}) as engine:
            yield engine
    except EngineEndedError as error:
        if error.ended.cause is ExitCause.REFUSED:
            raise KnownError(error.ended.detail) from None
        raise own_process.told(str(error), "\n".join(error.ended.log_lines)) from None


def _answer(engine: EngineProcess, draft_length: int) -> tuple[list[int], Figures]:
    """Token ids and figures."""
    command = Generate(
        request=0,
        messages=[Message(role="user", content=_QUESTION)],
        sampling=_SAMPLING,
        seed=_SEED,
        max_tokens=_MAX_TOKENS,
        draft_length=draft_length,
        drafter="model" if draft_length else "none",
        accept="coupled",
    )
    *events, finished = engine.generate(command)
    assert isinstance(finished, GenerationFinished)
    if finished.draft_failure is not None:
        raise KnownError(finished.draft_failure)
    return [piece.id for one in events if isinstance(one, Round) for piece in one.pieces], finished.figures


def _speed(figures: Figures) -> str:
    return f"{figures.decode_tokens_per_second or 0.0:.0f} tok/s"


# ---------------------------------------------------------------- files, secrets, network


def _chats(work: Workplace) -> str:
    from app.chats.store import ChatStore

    file = work.home() / "chats.sqlite"
    texts = ["Is this kept?", "Yes: ä, я, 字, 🙂 and all."]
    with ChatStore(file) as store:
        chat = store.create_chat()
        question = store.add_user_message(chat.id, None, texts[0])
        answer = store.begin_answer(chat.id, question.id, "selftest", {})
        store.finish_answer(answer.id, texts[1], [], "complete")
    with ChatStore(file) as store:
        found = [message.text for message in store.branch(chat.id)]
    if found != texts:
        raise KnownError("A chat that was written came back changed.")
    return f"a chat was written, closed and read again in {file.parent}"


def _folders(_: Workplace) -> str:
    folders = dict.fromkeys((paths.data_dir(), paths.config_dir(), paths.cache_dir(), paths.log_dir()))
    for folder in folders:
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"selftest")
                file.flush()
        except OSError as error:
            raise KnownError(f"Nothing can be written in {folder}: {error.strerror or error}.") from error
    return f"{', '.join(map(str, folders))} can be written"


def _keyring(_: Workplace) -> str:
    from app.models.hub.tokens import backend_name

    found = _within(KEYRING_SECONDS, backend_name, "The system's keyring")
    return found or "none here; access tokens cannot be stored"


def _tls(_: Workplace) -> str:
    from app.models.hub.network import trusted_authorities

    return trusted_authorities()


def _within(seconds: float, call: Callable[[], str | None], what: str) -> str | None:
    """What ``call`` returns or raises; it is left behind when it takes longer than that."""
    outcome: list[str | Exception | None] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise KnownError(f"{what} did not answer within {seconds:.0f} s.")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


# ---------------------------------------------------------------- the window


def _window(work: Workplace) -> str:
    """In a process of its own: Qt ends one in which it cannot show anything."""
    begun = time.monotonic()
    platform_changes = {} if program.has_display(os.environ) else {"QT_QPA_PLATFORM": "offscreen"}  # in memory
    process = own_process.start(work.home(), "--window", program.CLOSE_WHEN_READY, **platform_changes)
    try:
        shown, errors = process.communicate(timeout=WINDOW_SECONDS)
    except subprocess.TimeoutExpired:
        raise KnownError(f"The window was not ready after {WINDOW_SECONDS:.0f} s and was ended.") from None
    finally:
        own_process.end(process)
        process.wait()
    if process.returncode != 0:
        raise own_process.failure("The window", process.returncode, errors.decode("utf-8", "replace"))
    platform_name = shown.decode("utf-8", "replace").strip()
    return f"opened on {platform_name}, its engine loaded the guide, closed; {time.monotonic() - begun:.1f} s in all"


CHECKS = (
    Check("program", _program),
    Check("engine", _engine),
    Check("guide", _guide),
    Check("chats", _chats),
    Check("folders", _folders),
    Check("resources", _resources),
    Check("keyring", _keyring),
    Check("TLS", _tls),
    Check("window", _window),
)
