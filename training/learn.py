"""Trains a drafter for a given time; a run that was stopped goes on from its checkpoint."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.data import Batch
from training.distill import distilled
from training.eagle3 import Eagle3
from training.medusa import Medusa

SAVE_SECONDS = 120
STEP_WEIGHT = 0.8
"""Of each later step's loss, as a share of the one before."""


@dataclass(frozen=True)
class Lesson:
    """How long and how fast."""

    minutes: float
    peak: float
    checkpoint: Path
    head_pace: float = 0.4
    """Learning rate of the matrix of logits, which begins as the target's, as a share of all others'."""
    warm_steps: int = 30
    until: float = 0.0
    """If given, the time by the clock at which it ends, and `minutes` is how long it would take."""


class Drafter(Protocol):
    """What `learn` teaches: `loss` gives the sum, how many places it is of, and how often each step was right."""

    module: nn.Module

    def loss(self, batch: Batch) -> tuple[Tensor, float, Tensor]: ...


def _picked(valid: Tensor, steps: int) -> Tensor:
    """Weights [steps, rows, positions]: a later step needs the steps before it."""
    weights = [valid.float()]
    for _ in range(steps - 1):
        weights.append(STEP_WEIGHT * F.pad(weights[-1][:, :-1], (1, 0)) * valid)
    return torch.stack(weights)


class EagleLesson:
    """The head, unrolled over `steps`."""

    def __init__(self, head: Eagle3, embeddings: Tensor, output: Tensor, steps: int = 3) -> None:
        self.module = self.head = head
        self._embeddings, self._steps = embeddings, steps
        self._own = output[head.ids].to(torch.bfloat16)

    def loss(self, batch: Batch) -> tuple[Tensor, float, Tensor]:
        tokens = self._embeddings[batch.following].float()
        with torch.autocast("cpu", torch.bfloat16):
            outputs = self.head.unrolled(tokens, batch.states, batch.padding, batch.first, self._steps)
        weights = _picked(batch.valid, self._steps)
        kept = batch.valid.flatten()
        flat = [self.head.drop(self.head.last_norm(output).flatten(0, 1)[kept]) for output in outputs]
        weights = weights.flatten(1)[:, kept]
        total, right = distilled(self.head.head.weight, self._own, batch.last.flatten(0, 1)[kept], weights, flat)
        return total, float(weights.sum()), right


class MedusaLesson:
    """All heads at once: that of index i says what the target thinks i + 1 positions later."""

    def __init__(self, heads: Medusa, output: Tensor) -> None:
        self.module = self.heads = heads
        self._own = output[heads.ids].to(torch.bfloat16)

    def loss(self, batch: Batch) -> tuple[Tensor, float, Tensor]:
        total, count, rights = torch.zeros(()), 0.0, []
        for index, head in enumerate(self.heads.heads):
            later = index + 1
            kept = batch.valid[:, later:].flatten()
            state, last = batch.last[:, :-later].flatten(0, 1)[kept], batch.last[:, later:].flatten(0, 1)[kept]
            with torch.autocast("cpu", torch.bfloat16):
                inner = state + F.silu(head.linear(state))
            weights = torch.full((1, len(last)), STEP_WEIGHT**index)
            part, right = distilled(head.head.weight, self._own, last, weights, [inner])
            total, count = total + part, count + float(weights.sum())
            rights.append(right[0])
        return total, count, torch.stack(rights)


def _optimizer(module: nn.Module, lesson: Lesson) -> torch.optim.Optimizer:
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        pace = lesson.head_pace if "head.weight" in name or "embedding" in name else 1.0
        decay = 0.01 if parameter.ndim == 2 and pace == 1 else 0.0
        groups.setdefault((decay, pace), []).append(parameter)
    settings = [{"params": some, "weight_decay": decay, "pace": pace} for (decay, pace), some in groups.items()]
    return torch.optim.AdamW(settings, lr=lesson.peak, betas=(0.9, 0.97), fused=True)


class Clock:
    """How much of the lesson is over; time that passed before the last checkpoint counts too."""

    def __init__(self, lesson: Lesson, used: float) -> None:
        self._lesson, self._used, self._started = lesson, used, time.time()

    @property
    def elapsed(self) -> float:
        return self._used + time.time() - self._started

    @property
    def share(self) -> float:
        """From 0 to 1."""
        if not self._lesson.until:
            if not self._lesson.minutes:
                return 1.0
            return self.elapsed / (60 * self._lesson.minutes)
        left = self._lesson.until - time.time()
        return self.elapsed / (self.elapsed + left) if left > 0 else 1.0


def learn(
    drafter: Drafter, source: Iterator[Batch], lesson: Lesson, log: Callable[[str], None] = print
) -> dict[str, Any]:
    """Train until the time is over; the last checkpoint holds what came out."""
    optimizer = _optimizer(drafter.module, lesson)
    state: dict[str, Any] = {"elapsed": 0.0, "steps": 0, "positions": 0, "curve": []}
    if lesson.checkpoint.exists():
        saved = torch.load(lesson.checkpoint, weights_only=False)
        drafter.module.load_state_dict(saved.pop("module"))
        optimizer.load_state_dict(saved.pop("optimizer"))
        state = saved
    clock = Clock(lesson, state["elapsed"])
    saved_at = clock.elapsed
    mean: list[float] = []
    while clock.share < 1:
        figures = _step(drafter, next(source), optimizer, lesson, clock.share, state)
        mean = [
            old + (new - old) / min(30, len(state["curve"]) * 20 + 5)
            for old, new in zip(mean or figures, figures, strict=True)
        ]
        if state["steps"] % 20 == 0:
            rounded = [round(value, 4) for value in mean]
            state["curve"].append([round(clock.elapsed), state["positions"], *rounded])
            log(f"{clock.elapsed:6.0f} s  step {state['steps']}  {state['positions']} positions  {rounded}")
        if clock.elapsed - saved_at > SAVE_SECONDS or clock.share >= 1:
            saved_at = clock.elapsed
            _save(drafter, optimizer, lesson.checkpoint, state | {"elapsed": saved_at})
    lesson.checkpoint.with_suffix(".json").write_text(json.dumps(state["curve"]) + "\n")
    return state


def _save(drafter: Drafter, optimizer: torch.optim.Optimizer, path: Path, state: dict[str, Any]) -> None:
    whole = state | {"module": drafter.module.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(whole, path.with_suffix(".part"))
    path.with_suffix(".part").rename(path)


def _step(
    drafter: Drafter,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    lesson: Lesson,
    share: float,
    state: dict[str, Any],
) -> list[float]:
    drafter.module.train()
    total, count, right = drafter.loss(batch)
    total.backward(torch.tensor(1 / count))
    nn.utils.clip_grad_norm_(drafter.module.parameters(), 1.0)
    pace = min(1.0, (state["steps"] + 1) / lesson.warm_steps) * min(1.0, max(0.02, 2 * (1 - share)))
    for group in optimizer.param_groups:
        group["lr"] = lesson.peak * pace * group["pace"]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    state["steps"] += 1
    state["positions"] += int(batch.valid.sum())
    return [total.item(), *right.tolist()]
