"""The MTP head of a target: which file it is in, whether it is used, and loading it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.engine.llama.backend import gpu_devices
from app.engine.llama.context import Context
from app.engine.llama.head import Head
from app.engine.llama.head_chain import HeadChain
from app.engine.llama.model import Model
from app.engine.llama.shared_head import SharedHead
from app.errors import KnownError
from app.models.gguf import GgufHeader, check_loadable, read_header
from app.models.mtp import (
    DRAFT_INSTEAD,
    has_head,
    head_problem,
    is_assistant,
    is_head_only,
    is_wanted,
    mismatch,
    why_unwanted,
)
from app.protocol.commands import Load
from app.protocol.events import ModelInfo

log = logging.getLogger("slipstream.engine")


@dataclass
class TargetHead:
    """The head of a target in memory."""

    cache: Head
    model: Model | None
    """The model it is in, if it is in a file of its own."""
    file: ModelInfo | None = None
    """What the window shows about that file."""

    def close(self) -> None:
        """Free it, before its target."""
        self.cache.close()
        if self.model:
            self.model.close()


def header_of_head(command: Load, target: GgufHeader) -> GgufHeader | None:
    """The header of the file whose head ``command`` wants: the target's, or of the file given in place of a draft
    model; ``None`` if it wants none. Beside a draft model, the target's is only used if it is asked for.
    """
    if command.draft:
        with contextlib.suppress(KnownError):  # the reason is given where it is loaded as a draft model
            header = read_header(Path(command.draft))
            if is_head_only(header):
                return header
        if command.head != "on":
            return None
    if not is_wanted(command.head, target, command.settings.target_gpu_layers):
        return None
    return target if command.head == "on" or has_head(target) else None


def why_unused(command: Load, target: GgufHeader) -> str | None:
    """Why ``command``, which wants no head, doesn't want that inside ``target``, for the user.

    ``None`` if there is none that can be used.
    """
    if head_problem(target) is not None:
        return None
    return DRAFT_INSTEAD if command.draft else why_unwanted(command.head, target, command.settings.target_gpu_layers)


def load_head(
    target: Context, files: tuple[GgufHeader, GgufHeader], command: Load, load_model: Callable[[Path], Model]
) -> TargetHead:
    """Load the head for ``target``, and let it follow its cache.

    ``files``: the headers of the target and of the file with the head; ``load_model`` is called for the latter if it is
    another file. Raises `KnownError` if the head can't be used.
    """
    own, header = files
    if problem := head_problem(header) if header is own else mismatch(own, header):
        raise KnownError(problem)
    with contextlib.ExitStack() as undo:
        model = None
        if header is not own:
            check_loadable(header, as_head=True)
            model = load_model(header.path)
            undo.callback(model.close)
        kind = SharedHead if is_assistant(header) else HeadChain if header.mtp_layers > 1 else Head
        head = kind(target, model or target.model, command.settings)
        undo.callback(head.close)
        head.decode_largest([0, 0], 1, 1)  # allocates the compute buffers, for each head of a chain
        head.clear()
        target.head = head
        undo.callback(setattr, target, "head", None)
        target.decode([0], 0)  # whether it gives hidden states
        target.clear()
        if head.failure:
            raise KnownError(head.failure)
        undo.pop_all()
    return TargetHead(head, model)


def head_draft_length(gpu_layers: int) -> int:
    """The fixed draft length for a head: as others have measured, until it is measured here."""
    return 2 if gpu_layers and gpu_devices() else 3
