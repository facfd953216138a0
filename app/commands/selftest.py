"""``slipstream selftest``: checks whether this copy works on this machine, one line per check.

A check returns its finding in a few words, or raises an error.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import psutil

from app import __version__, helper, system, words
from app.client.connection import EngineEndedError, ExitCause
from app.client.process import EngineProcess
from app.commands.options import command, option
from app.helper.messages import FormulaDrawn, RenderFormula
from app.models.starter import STARTER_NAME, STARTER_SHA256, starter_file
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import Figures, GenerationFinished, PairLoaded, Piece, Round
from app.protocol.options import AnswerFormat, LoadSettings, Sampling
from app.system import KnownError
from app.words import printable

ENGINE_SECONDS = 60.0
WINDOW_SECONDS = 60.0
KEYRING_SECONDS = 5.0
"""Time limits in seconds; a working computer needs a tenth of these."""
GPU_SECONDS = 600.0
"""Time limits with a GPU, whose driver compiles its programs on first use; that took two minutes with Mesa's llvmpipe.
"""
_QUESTION = "What is speculative decoding?"
_SAMPLING = Sampling(temperature=0.8)
_SEED = 1
_SCHEMA = (
    '{"type": "object", "properties": {"is_draft": {"type": "boolean"}}, "required": ["is_draft"], '
    '"additionalProperties": false}'
)
_FORMULA = r"\sum_{i=1}^n \frac{\alpha_i}{2}"
_DRAFT_LENGTH = 5
_MAX_TOKENS = 96
_DETAIL_CHARACTERS = 400
_OF_LOCALE = re.compile(r'^Detected locale ".*?^for more information\.$', re.MULTILINE | re.DOTALL)


class Workplace(contextlib.ExitStack):
    """Gives checks folders to write to; deletes everything when the check is over."""

    def home(self) -> Path:
        """A new temporary folder, or one in our cache folder. Raises `KnownError` if neither can be created."""
        parents: tuple[Callable[[], Path | None], ...] = (lambda: None, system.cache_dir)
        for parent in parents:
            with contextlib.suppress(OSError, KnownError):
                folder = tempfile.TemporaryDirectory(
                    prefix="slipstream-selftest-", dir=parent(), ignore_cleanup_errors=True
                )
                return Path(self.enter_context(folder))
        raise KnownError(
            "Neither the temporary folder nor Slipstream's cache folder can be written to, so this wasn't tested."
        )


Check: TypeAlias = Callable[[Workplace], str]


@command(
    "selftest",
    "check whether this copy of Slipstream works on this computer",
    option("--verbose", action="store_true", help="print the details of failures to standard error"),
    json=False,
)
def selftest(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return report(CHECKS, verbose=options.verbose)


def report(checks: Mapping[str, Check], *, verbose: bool = False) -> int:
    """Run all checks and print a line for each; returns 0 if all were successful, otherwise 1."""
    results = [_carry_out(name, check, verbose) for name, check in checks.items()]
    return 0 if all(results) else 1


def _carry_out(name: str, check: Check, verbose: bool) -> bool:
    try:
        with Workplace() as work:
            detail, is_well = check(work), True
    except Exception as error:
        detail, is_well = str(error) if isinstance(error, KnownError) else f"{type(error).__name__}: {error}", False
        if verbose:
            traceback.print_exception(error)
    line = printable(detail.replace("\n", " ").replace(words.NO_BREAK, " "), _DETAIL_CHARACTERS)
    print(f"{'ok' if is_well else 'failed':8}{name:11}{line}", flush=True)
    return is_well


# ---------------------------------------------------------------- the program


def _program(_: Workplace) -> str:
    origin = "packaged" if system.is_frozen() else "from source"
    return f"Slipstream {__version__} {origin}, Python {platform.python_version()}, {platform.platform()}"


def _resources(_: Workplace) -> str:
    from app.compare import prompts
    from app.models.hub.catalog import load_catalog

    icons = sorted(system.resource("icons").glob("*.svg"))
    if not any(icon.stem == "slipstream" for icon in icons):
        raise KnownError("This copy has no icons.")
    for icon in icons:
        if b"</svg>" not in icon.read_bytes():
            raise KnownError(f"The icon {icon.name} is damaged. Reinstall Slipstream.")
    models = len(load_catalog().models)
    asked = len(prompts.bundled()) + len(prompts.read(system.resource("bench", "prompts.txt")))
    size = _check_guide(system.resource("guide"))
    if not system.licenses().is_file():
        raise KnownError("This copy has no license texts.")
    return (
        f"{len(icons)} icons, {models} recommended models, {asked} prompts, licenses, {words.size(size)} for the guide"
    )


class _GuideFile(msgspec.Struct):
    name: str
    sha256: str


class _Provenance(msgspec.Struct):
    files: dict[str, _GuideFile]


def _check_guide(folder: Path) -> int:
    """Compares the guide's files with their released hashes; returns their size in bytes. Raises `KnownError`."""
    total = 0
    for file in system.decode((folder / "PROVENANCE.json").read_bytes(), _Provenance).files.values():
        content = (folder / file.name).read_bytes()
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise KnownError(
                f"{file.name} is damaged: it isn't the file that came with this version. Reinstall Slipstream."
            )
        total += len(content)
    return total


def _starter(_: Workplace) -> str:
    """Checks the starter model: it may be missing, but not different."""
    if (file := starter_file()) is None:
        return "not installed; the package slipstream-starter has it"
    with file.open("rb") as opened:
        if hashlib.file_digest(opened, "sha256").hexdigest() != STARTER_SHA256:
            raise KnownError(f"{file} is damaged. Install the package slipstream-starter again.")
    return f"{STARTER_NAME} in {file.parent}"


# ---------------------------------------------------------------- the engine


def _engine(work: Workplace) -> str:
    with _engine_at(work) as engine:
        hello = engine.hello()
    devices = ", ".join(device.description for device in hello.devices)
    features = " ".join(hello.processor_features)
    return f"{hello.engine} on {devices or 'the CPU'}; instruction sets: {features or 'not reported'}"


def _guide(work: Workplace) -> str:
    """Checks that the same seed gives the same answer with and without a draft."""
    with _guide_loaded(work) as (engine, pair):
        if pair.draft_refused is not None:
            raise KnownError(f"The draft model is not used. {pair.draft_refused}")
        plainly, plain_figures = _answer(engine, draft_length=0, drafter="none", accept="coupled")
        with_draft, figures = _answer(engine, draft_length=_DRAFT_LENGTH, drafter="model", accept="coupled")
    plain, drafted = ([piece.id for piece in answer] for answer in (plainly, with_draft))
    if plain != drafted:
        place = next((i for i, pair in enumerate(zip(plain, drafted, strict=False)) if pair[0] != pair[1]), len(plain))
        raise KnownError(
            f"With the same seed, the answer with a draft differs from the one without, starting at token {place + 1}."
        )
    if not figures.draft.accepted:
        raise KnownError(f"None of the {figures.draft.tested} draft tokens was accepted.")
    return (
        f"{len(plain)} tokens, the same without a draft ({_speed(plain_figures)}) and with it ({_speed(figures)}); "
        f"{figures.draft.accepted} of {figures.draft.tested} draft tokens accepted"
    )


def _format(work: Workplace) -> str:
    """Checks that an answer follows its format."""
    with _guide_loaded(work) as (engine, _):
        pieces, _figures = _answer(engine, format=AnswerFormat(kind="json_schema", source=_SCHEMA))
    text = "".join(piece.text for piece in pieces)
    try:
        answer = system.decode(text.encode(), dict[str, bool])
    except msgspec.DecodeError:
        answer = {}
    if list(answer) != ["is_draft"]:
        raise KnownError(f"An answer doesn't follow its JSON schema: {text}")
    return f"an answer by a JSON schema: {text}"


@contextlib.contextmanager
def _engine_at(work: Workplace) -> Iterator[EngineProcess]:
    """An engine with its own home folder. Raises `KnownError` with the most informative line if it fails."""
    try:
        with EngineProcess(limit_seconds=ENGINE_SECONDS, **{system.HOME_VARIABLE: str(work.home())}) as engine:
            yield engine
    except EngineEndedError as error:
        if error.ended.cause is ExitCause.REFUSED:
            raise KnownError(error.ended.detail) from None
        raise _with_details(str(error), "\n".join(error.ended.log_lines)) from None


@contextlib.contextmanager
def _guide_loaded(work: Workplace) -> Iterator[tuple[EngineProcess, PairLoaded]]:
    """An engine with the guide and its draft."""
    target, draft = (str(system.resource("guide", f"guide-{name}.gguf")) for name in ("target", "draft"))
    settings = LoadSettings(chat_cache_mib=0)
    with _engine_at(work) as engine:
        if engine.hello().devices:
            engine.limit(GPU_SECONDS)
        yield engine, engine.load(Load(request=0, target=target, draft=draft, settings=settings))


def _answer(engine: EngineProcess, **changes: Any) -> tuple[list[Piece], Figures]:
    """Ask the same question, with ``changes`` to the `Generate`."""
    asked = [Message(role="user", content=_QUESTION)]
    command = Generate(request=0, messages=asked, sampling=_SAMPLING, seed=_SEED, max_tokens=_MAX_TOKENS)
    *events, finished = engine.generate(msgspec.structs.replace(command, **changes))
    assert isinstance(finished, GenerationFinished)
    if finished.draft_failure is not None:
        raise KnownError(finished.draft_failure)
    return [piece for one in events if isinstance(one, Round) for piece in one.pieces], finished.figures


def _speed(figures: Figures) -> str:
    return words.speed(figures.decode_tokens_per_second)


# ---------------------------------------------------------------- chats, folders, secrets, network


def _chats(work: Workplace) -> str:
    from app.chats.model import StoredMessage
    from app.chats.store import ChatStore, new_id

    file = work.home() / "chats.sqlite"
    texts = ["Is this kept?", "Yes: ä, я, 字, 🙂 and all."]
    with ChatStore(file) as store:
        chat = store.create_chat()
        question = StoredMessage(new_id(), chat.id, None, "user", texts[0], "complete", time.time())
        answer = StoredMessage(new_id(), chat.id, question.id, "assistant", "", "streaming", time.time())
        store.add_message(question)
        store.finish_answer(replace(store.add_message(answer), text=texts[1], status="complete"))
    with ChatStore(file) as store:
        found = [message.text for message in store.branch(chat.id)]
    if found != texts:
        raise KnownError("A stored chat was different when it was read back.")
    return f"a chat was written, closed and read again in {file.parent}"


def _folders(_: Workplace) -> str:
    folders = dict.fromkeys((system.data_dir(), system.config_dir(), system.cache_dir(), system.log_dir()))
    for folder in folders:
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"selftest")
                file.flush()
        except OSError as error:
            raise KnownError(f"Can't write to {folder}: {error.strerror or error}.") from error
    return f"{', '.join(map(str, folders))} can be written to"


def _keyring(_: Workplace) -> str:
    from app.models.hub.network import backend_name

    found = _with_time_limit(KEYRING_SECONDS, backend_name, "The system's keyring")
    return found or "no keyring on this system; access tokens can't be stored"


def _tls(_: Workplace) -> str:
    from app.models.hub.network import trusted_authorities

    return trusted_authorities()


def _with_time_limit(seconds: float, call: Callable[[], str | None], what: str) -> str | None:
    """The result of ``call``, or what it raises; gives up after the time limit."""
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
        raise KnownError(f"{what} didn't answer within {words.number(seconds)} s.")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


# ---------------------------------------------------------------- the window


def _window(work: Workplace) -> str:
    """Opens the window in a separate process, which Qt aborts if there is no display."""
    limit = GPU_SECONDS if _has_gpu(work) else WINDOW_SECONDS
    begun = time.monotonic()
    platform_changes = {} if system.has_display(os.environ) else {"QT_QPA_PLATFORM": "offscreen"}  # in memory
    command = system.own_command("--window", system.CLOSE_WHEN_READY)
    process = system.start_process(command, {system.HOME_VARIABLE: str(work.home()), **platform_changes})
    try:
        shown, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise KnownError(f"The window wasn't ready after {words.number(limit)} s and was closed.") from None
    finally:
        end(process)
        process.wait()
    if process.returncode != 0:
        raise failure("The window", process.returncode, errors.decode("utf-8", "replace"))
    platform_name = shown.decode("utf-8", "replace").strip()
    return f"opened on {platform_name}, loaded the guide, closed; {words.clock(time.monotonic() - begun)} in total"


def _formula(_: Workplace) -> str:
    """Has the helper process draw a formula, which needs its font and symbol table."""
    found = helper.shared().ask(RenderFormula(_FORMULA, is_display=True))
    helper.shared().stop()
    if not isinstance(found, FormulaDrawn) or not found.parts:
        raise KnownError("A formula can't be drawn.")
    return f"a formula of {len(found.parts)} parts was drawn"


def _has_gpu(work: Workplace) -> bool:
    with contextlib.suppress(KnownError), _engine_at(work) as engine:  # another check reports that
        return bool(engine.hello().devices)
    return False


# ---------------------------------------------------------------- other processes of this program


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything it started; does nothing if it has ended, because its id may have been reused."""
    if process.poll() is not None:
        return
    try:
        tree = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    except psutil.NoSuchProcess:
        return
    for one in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


def failure(what: str, status: int, errors: str) -> KnownError:
    """Why a process failed: how it ended, and the most informative line of its output."""
    return _with_details(f"{what} ended with {_status_text(status)}.", errors)


def _with_details(sentence: str, errors: str) -> KnownError:
    """``sentence`` with the most informative line of ``errors``; the rest goes into the error's notes."""
    # Without a UTF-8 locale, Qt first prints a long explanation.
    lines = [line.strip() for line in _OF_LOCALE.sub("", errors).splitlines() if line.strip()]
    # A traceback's message is its last line, everything else's is its first.
    line = (lines[-1] if lines[0].startswith("Traceback") else lines[0]) if lines else ""
    error = KnownError(f"{sentence} {line}".strip())
    error.add_note(errors)
    return error


def _status_text(status: int) -> str:
    if status >= 0:
        return f"exit status {status if sys.platform != 'win32' else hex(status)}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


CHECKS: dict[str, Check] = {
    "program": _program,
    "engine": _engine,
    "guide": _guide,
    "format": _format,
    "formula": _formula,
    "chats": _chats,
    "folders": _folders,
    "resources": _resources,
    "starter": _starter,
    "keyring": _keyring,
    "TLS": _tls,
    "window": _window,
}
