"""Whether a model fits this machine, and two files fit as a pair; determined outside the window's thread."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app import words
from app.models.gguf import GgufHeader
from app.models.heads import find_projector, has_head, head_problem, projector_bytes
from app.models.machine_memory import MachineMemory
from app.models.measurements import Trial
from app.models.memory_shape import ModelShape, shape_of
from app.models.pairing import compare
from app.models.planner import make_plan
from app.system import KnownError
from app.ui.engine.load_planner import AT_ONCE, Headers
from app.ui.widgets.tasks import Lane
from app.words import printable

Mood = Literal["quiet", "good", "warning", "bad"]
"""The color role for a text about models."""

_ALONE = "The target model is loaded without a draft."
_N_GRAMS = "Draft tokens are taken from the chat itself (n-grams)."


@dataclass(frozen=True)
class FitBadge:
    """``text`` for a column, ``detail`` for its tooltip."""

    text: str
    mood: Mood = "quiet"
    detail: str = ""


UNKNOWN_FIT = FitBadge("–", detail="Not known yet.")


def badge_for(shape: ModelShape, machine: MachineMemory) -> FitBadge:
    """The badge of a single model, from its header."""
    plan = make_plan(shape, None, machine)
    if not plan.fits:
        return FitBadge("Too large", "bad", plan.sentence)
    if plan.context_length < shape.default_context:
        return FitBadge("Short context", "warning", plan.sentence)
    if not machine.devices:
        return FitBadge("Runs on CPU", "good", plan.sentence)
    if plan.target_gpu_layers < 0 or plan.target_gpu_layers >= shape.gpu_slots:
        return FitBadge("Runs on GPU", "good", plan.sentence)
    return FitBadge("Partly on GPU" if plan.target_gpu_layers else "Runs on CPU", "warning", plan.sentence)


def badge_for_size(needed: int, machine: MachineMemory) -> FitBadge:
    """The badge for ``needed`` bytes, before a header is known."""
    gpu = sum(device.free_bytes for device in machine.devices)
    about = f"Needs about {words.size(needed)}"
    if gpu and needed <= gpu:
        return FitBadge("Runs on GPU", "good", f"{about}; the GPU has {words.size(gpu)} free.")
    if needed <= machine.memory_free:
        detail = f"{about}; {words.size(machine.memory_free)} of memory is free."
        return FitBadge("Partly on GPU", "warning", detail) if gpu else FitBadge("Runs on CPU", "good", detail)
    if needed <= gpu + machine.memory_free:
        return FitBadge("Partly on GPU", "warning", f"{about}, which is more than the GPU has free.")
    return FitBadge("Too large", "bad", f"{about}, but only {words.size(max(gpu, machine.memory_free))} is free.")


def measured_here(trial: Trial) -> str:
    """``68% accepted · 1.8× faster · Nov 22, 2026``."""
    accepted = "nothing drafted" if trial.acceptance_rate is None else words.accepted(trial.acceptance_rate)
    return f"{accepted} · {words.speed_up(trial.speed_up)} · {words.date(trial.measured_at)}"


def trial_role(trial: Trial | None) -> str:
    """The color role for a trial's text."""
    return "good" if trial is not None and trial.speed_up > 1 else "quiet"


@dataclass(frozen=True)
class PairCheck:
    """What the dialog shows about the two files."""

    verdict: str
    mood: Mood = "quiet"
    target: str = ""
    """The target in one line; empty if the file isn't a model."""
    draft: str = ""
    can_load: bool = False
    target_shape: ModelShape | None = None
    """For estimating memory use."""
    draft_shape: ModelShape | None = None
    """Only set if the draft fits the target."""
    head: GgufHeader | None = None
    """The target's header, if it has a usable MTP head inside."""
    projector_bytes: int = 0
    """Memory for the projector in the target's folder; 0 if there is none."""


NO_TARGET = PairCheck("Choose a target model file.")
READING = PairCheck("Reading the files…", can_load=True)


def describe(header: GgufHeader) -> str:
    """``Qwen3 8B · 8.2 B parameters · Q4_K_M · 5 GB · trained for 40,960 tokens``, as far as known."""
    parts = [printable(header.known_name), printable(header.architecture)]
    if header.parameters:
        parts.append(f"{words.compact(header.parameters)} parameters")
    parts += [printable(header.quantization), words.size(header.file_size)]
    if header.training_context:
        parts.append(f"trained for {words.number(header.training_context)} tokens")
    return " · ".join(part for part in parts if part)


def judge(target: str, draft: str | None, headers: Headers) -> PairCheck:
    """Read both files and decide. Slow: a vocabulary may have hundreds of thousands of tokens."""
    if not target:
        return NO_TARGET
    try:
        first = headers.read(target)
    except KnownError as error:
        return PairCheck(str(error), "bad")
    projector = find_projector(first)
    alone = PairCheck(
        _without_draft(first),
        target=describe(first) + (f" · sees images with {printable(projector.path.name)}" if projector else ""),
        projector_bytes=projector_bytes(projector) if projector else 0,
        head=None if head_problem(first) else first,
        can_load=True,
        target_shape=shape_of(first),
    )
    if draft is None:
        return alone
    try:
        second = headers.read_draft(draft)
    except KnownError as error:
        return replace(alone, verdict=f"{error} {_ALONE}", mood="warning")
    found = compare(first, second)
    remark = found.warning if found.fits else _ALONE
    return replace(
        alone,
        verdict=f"{found.reason} {remark}" if remark else found.reason,
        mood="warning" if remark else "good",
        draft=describe(second),
        draft_shape=shape_of(second) if found.fits else None,
    )


def _without_draft(target: GgufHeader) -> str:
    if not has_head(target):
        return f"No draft model. {_N_GRAMS}"
    problem = head_problem(target)
    return f"{problem} {_N_GRAMS}" if problem else "MTP head inside: this model can draft without a second one."


class PairChecker(QObject):
    """Judges pairs outside the window's thread and drops outdated results. Signal ``checked``: the `PairCheck` of the
    files requested last.
    """

    checked = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._headers = Headers()
        self._lane = Lane(self, "headers", at_once=AT_ONCE)
        self._asked: Future[PairCheck] | None = None

    def check(self, target: str, draft: str | None) -> None:
        """Check a pair; `checked` follows unless another check replaces it."""
        self.stop()
        self._asked = self._lane.submit(
            partial(judge, target, draft, self._headers),
            self.checked.emit,
            lambda error: self.checked.emit(PairCheck(str(error), "bad", can_load=True)),
        )

    def stop(self) -> None:
        """Drop the current check."""
        self._lane.drop(self._asked)
