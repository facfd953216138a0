"""Records how a set of comparisons was made.

Of the machine, it records only what affects speed: no host name, user name or serial number.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import psutil

from app import __version__
from app import system as paths
from app.compare import prompts
from app.compare.results import Machine, ModelFile, Setup
from app.models.gguf import ModelFileError, read_header
from app.models.memory_shape import ModelShape, shape_of
from app.models.model_memory import PairMemory
from app.protocol.answering import with_fields_of
from app.protocol.commands import Generate
from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.options import HEADS, DrafterChoice, LoadSettings, chosen_options
from app.protocol.remote import SERVER_NAMES
from app.system import Canceled
from app.words import printable

BUNDLED = "bundled"
"""The name of the bundled prompt set in reports."""
_BLOCK_BYTES = 4 * 1024 * 1024


def setup_of(
    *,
    engine: str,
    devices: Sequence[str],
    pair: PairLoaded,
    settings: LoadSettings,
    command: Generate,
    repeat: int = 1,
    prompt_file: Path | None = None,
    kinds: Sequence[str] = (),
    drafters: Sequence[DrafterChoice] = (),
    without: PairLoaded | None = None,
    medusa: Path | None = None,
) -> Setup:
    """The setup without the hashes of the models, which `hashed` adds.

    ``engine`` and ``devices`` come from `app.protocol.events.Hello`; ``command`` is any drafted run with the first
    seed; ``prompt_file`` is ``None`` for prompts from a chat; ``without`` is a second server, which answered without a
    draft. Raises `KnownError` if the file is gone.
    """
    bundled = prompt_file == prompts.bundled_file()
    return with_fields_of(
        Setup,
        command,
        date=datetime.now().astimezone().isoformat(timespec="seconds"),
        app_version=__version__,
        engine=engine,
        python=platform.python_version(),
        machine=_this_machine(list(devices)),
        servers=_servers(pair, without),
        target=_model(pair.target),
        draft=_model(pair.draft) if pair.draft else None,
        head=_model(pair.head_file or pair.target) if pair.has_head else None,
        head_drafter=pair.head_drafter or "mtp",
        medusa=ModelFile(name="", file=medusa.name, sha256=model_hash(medusa)) if medusa else None,
        template="none" if command.raw else pair.template,
        context_length=pair.context_length,
        threads=pair.threads,
        target_gpu_layers=pair.target.gpu_layers,
        draft_gpu_layers=pair.draft.gpu_layers if pair.draft else 0,
        kv_type=settings.kv_type,
        batch_size=settings.batch_size,
        micro_batch_size=settings.micro_batch_size,
        load_options=_load_options(settings, pair),
        system_prompt=next((one.content for one in command.messages if one.role == "system"), ""),
        seed=command.seed or 0,
        repeat=repeat,
        prompt_set="" if prompt_file is None else BUNDLED if bundled else prompt_file.name,
        prompt_set_sha256=prompts.sha256(prompt_file) if prompt_file else "",
        kinds=list(kinds),
        drafters=list(drafters),
        drafter_bytes=_drafter_bytes(pair, settings) if drafters else {},
    )


def hashed(setup: Setup, pair: PairLoaded, should_stop: Callable[[], bool] = lambda: False) -> Setup:
    """``setup`` with the hashes of the files of ``pair``; see `model_hash`."""
    target = msgspec.structs.replace(setup.target, sha256=model_hash(Path(pair.target.path), should_stop))
    draft = setup.draft
    if draft is not None and pair.draft is not None:
        draft = msgspec.structs.replace(draft, sha256=model_hash(Path(pair.draft.path), should_stop))
    head = setup.head
    if head is not None:
        file = Path((pair.head_file or pair.target).path)
        head = msgspec.structs.replace(head, sha256=model_hash(file, should_stop))
    return msgspec.structs.replace(setup, target=target, draft=draft, head=head)


def fitting(pair: PairLoaded, command: Generate) -> list[DrafterChoice]:
    """The drafters with which ``command`` can be compared, then ``auto``, which chooses among them."""
    names = [name for name in pair.all_drafters if name != "grammar" or command.format is not None]
    return [*names, "auto"]


def _drafter_bytes(pair: PairLoaded, settings: LoadSettings) -> dict[DrafterChoice, int]:
    """What drafters need in addition to the target; empty if a file can't be read."""
    try:
        target, *others = [shape_of(read_header(Path(model.path))) for model in pair.models]
    except ModelFileError:
        return {}
    head = (others.pop() if pair.head_file else target) if pair.has_head else None

    def total(draft: ModelShape | None, head: ModelShape | None) -> int:
        found = PairMemory(
            target,
            draft,
            head=head,
            context_length=pair.context_length,
            kv_type=settings.kv_type,
            draft_context_length=settings.draft_context_length or None,
            draft_kv_type=None if settings.draft_kv_type == "auto" else settings.draft_kv_type,
            target_gpu_layers=pair.target.gpu_layers,
            draft_gpu_layers=pair.draft.gpu_layers if pair.draft else 0,
            batch_size=settings.micro_batch_size,
        ).estimate()
        return found.system.total + found.gpu.total

    plain, draft = total(None, None), others[0] if others else None
    return {
        name: (total(None, head) if name in HEADS or draft is None else total(draft, None)) - plain
        for name in pair.all_drafters
        if name in (*pair.drafters, "tree")
    }


def _servers(pair: PairLoaded, without: PairLoaded | None) -> list[str]:
    """Kinds and versions, without addresses."""
    found = []
    for one in (pair, without):
        if one is not None and one.remote is not None:
            server = one.remote.server
            found.append(f"{SERVER_NAMES[server.kind]} {server.version}".strip())
    if without is not None and without.target.name != pair.target.name:
        found[1] += f", model {printable(without.target.name)}"
    return found


_hashes: dict[tuple[str, int, int], str] = {}
"""By path, size and modification time, so that large files are hashed only once."""


def model_hash(path: Path, should_stop: Callable[[], bool] = lambda: False) -> str:
    """The SHA-256 of a model's file, or of all parts of a split one in order; empty if a file is gone.

    Reads the files completely, about a second per gigabyte: don't call it in a thread that must respond. Raises
    `Canceled`.
    """
    try:
        status = path.stat()
        stamp = str(path), status.st_size, status.st_mtime_ns
        if stamp not in _hashes:
            _hashes[stamp] = _sha256(_parts(path), should_stop)
    except OSError:
        return ""
    return _hashes[stamp]


def _load_options(settings: LoadSettings, pair: PairLoaded) -> dict[str, Any]:
    threads = {"batch_threads": pair.batch_threads} if pair.batch_threads not in (0, pair.threads) else {}
    options = {
        name: value for name, value in chosen_options(settings).items() if name != "exact"
    }  # the rule implies it
    return options | threads


def _model(info: ModelInfo) -> ModelFile:
    path = Path(info.path)
    return ModelFile(
        name=info.name,
        file=path.name,
        size_bytes=info.size_bytes,
        quantization=info.quantization,
        parameters=info.parameters,
        bundled=path.parent == paths.resource("guide"),
    )


def _parts(path: Path) -> list[Path]:
    """The files of a model; more than one if it is split."""
    try:
        split = read_header(path).split
    except ModelFileError:
        return [path]
    return list(split.files) if split and split.files else [path]


def _sha256(files: Sequence[Path], should_stop: Callable[[], bool]) -> str:
    """The hash of all files in order, like ``cat FILE… | sha256sum``."""
    found = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                if should_stop():
                    raise Canceled
                found.update(block)
    return found.hexdigest()


# ---------------------------------------------------------------- the machine


def _this_machine(devices: list[str]) -> Machine:
    return Machine(
        processor=_processor() or platform.processor() or platform.machine(),
        physical_cores=psutil.cpu_count(logical=False) or 0,
        logical_cores=psutil.cpu_count() or 0,
        memory_bytes=psutil.virtual_memory().total,
        system=_system(),
        devices=devices,
    )


def _processor() -> str:
    """The processor's name as its manufacturer writes it; empty if the system doesn't report it."""
    try:
        if sys.platform == "win32":
            return _registry_processor()
        if sys.platform == "darwin":
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(command, check=True, capture_output=True, text=True, timeout=5).stdout.strip()
        return _proc_processor(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    except (OSError, subprocess.SubprocessError):
        return ""


def _proc_processor(cpuinfo: str) -> str:
    """The name in Linux's list of processors; ARM kernels leave it out."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() == "model name":
            return " ".join(value.split())
    return ""


if sys.platform == "win32":

    def _registry_processor() -> str:
        import winreg

        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0") as key:
            return str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()


def _system() -> str:
    kernel = f"{platform.system()} {platform.release()} ({platform.machine()})"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except (OSError, KeyError):
        return kernel
