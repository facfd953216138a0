"""Trains the target: for a given time, first on which answer to give, then on its words too."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from guide.batches import Batch, Row, Rows, batch_of, packed
from guide.choose import SMOOTHING, Chooser, choice_loss, teach_choice
from guide.clock import SAVE_SECONDS, Clock
from guide.corpus import Topic
from guide.model import Llama, Shape
from guide.tokenizer import Encoder

LESSON_PACE = 0.5
"""Learning rate of what the first lesson taught, as a share of that of all else: it should not forget."""
TARGET_CHECKPOINT = "target.checkpoint.pt"
MICRO_TOKENS = 4000
LAST_PART = 0.75
"""From here on questions look as they are asked (`Rows.settle`)."""
HELD_SHARE = 0.7
"""Of the lesson about words that are known: how much of it is what the model before thinks of them."""
CHOICE_WEIGHT = 0.3
"""Of both losses of choice: with more their gradients, which are far larger, drown those of the words."""


@dataclass(frozen=True)
class Lesson:
    """How long, how fast and on how many rows a step the whole model learns.

    Whole answers are for their words; beginnings, which are quicker, and prompts alone for which answer it is.
    """

    minutes: float
    peak: float = 1e-3
    whole_rows: int = 12
    short_rows: int = 32
    prompts: int = 32
    before: Llama | None = None
    """The model before its corpus changed: what it thinks of the answers it knows is to stay."""
    changed: frozenset[str] = frozenset()
    """Ids of the topics that it does not know."""
    often: int = 1
    """How many times as often as others these are drawn, but for the last part."""
    now: Callable[[], float] = time.monotonic
    """What the minutes are counted by."""

    def rows_of_step(self, rows: Rows) -> list[Row]:
        return [rows.whole() for _ in range(self.whole_rows)] + [rows.short() for _ in range(self.short_rows)]


def learning_rate(progress: float, steps: int, peak: float) -> float:
    """Warm up, hold, and fall to nothing over the last half of the time."""
    return peak * min(1.0, (steps + 1) / 40) * min(1.0, max(0.01, 2 * (1 - progress)))


def optimizer_of(module: nn.Module, peak: float, taught: tuple[str, ...] = ()) -> torch.optim.Optimizer:
    """Parameters whose names start with one of `taught` learn at `LESSON_PACE`; matrices but the embedding decay."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        decay = 0.1 if parameter.ndim == 2 and "embedding" not in name else 0.0
        pace = LESSON_PACE if name.startswith(taught) else 1.0
        groups.setdefault((decay, pace), []).append(parameter)
    settings = [{"params": params, "weight_decay": decay, "pace": pace} for (decay, pace), params in groups.items()]
    return torch.optim.AdamW(settings, lr=peak, betas=(0.9, 0.98), fused=True)


def train_target(
    topics: list[Topic],
    encoder: Encoder,
    shape: Shape,
    folder: Path,
    lesson: Lesson,
    *,
    choice_minutes: float = 8,
    dropout: float = 0.1,
    log: Callable[[str], None] = print,
) -> tuple[Llama, dict[str, float]]:
    """Train from scratch, or go on with the checkpoint in `folder`, until the time of the `lesson` is over.

    Returns the target with its last losses and its figures on held-out wordings.
    """
    torch.manual_seed(1)
    chooser = Chooser(Llama(shape, dropout), sum(len(topic.turns) for topic in topics))
    first_lesson = folder / "choice.checkpoint.pt"
    if first_lesson.exists():
        chooser.load_state_dict(torch.load(first_lesson))
    elif not (folder / TARGET_CHECKPOINT).exists():
        teach_choice(chooser, topics, encoder, folder, choice_minutes, log=log)
        torch.save(chooser.state_dict(), first_lesson)
    figures = teach(chooser, topics, encoder, folder, lesson, log=log)
    return chooser.model.eval(), figures


def teach(
    chooser: Chooser,
    topics: list[Topic],
    encoder: Encoder,
    folder: Path,
    lesson: Lesson,
    *,
    best: Path | None = None,
    log: Callable[[str], None] = print,
) -> dict[str, float]:
    """Give `chooser` the `lesson`, or what the checkpoint in `folder` leaves of it; returns losses and figures.

    With `best` the weights that did best on held-out wordings are kept there.
    """
    optimizer = optimizer_of(chooser, lesson.peak, taught=("model.embedding.", "model.layers.0.", "head."))
    used, steps, highest, figures = 0.0, 0, 0.0, {"words": 8.0, "choice": 6.0}
    checkpoint = folder / TARGET_CHECKPOINT
    if checkpoint.exists():
        state = torch.load(checkpoint)
        chooser.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        used, steps, highest, figures = state["elapsed"], state["steps"], state["highest"], state["figures"]
    rows = Rows(topics, encoder, seed=1 + steps, changed=lesson.changed, often=lesson.often)
    clock = Clock(lesson.minutes * 60, used, lesson.now)
    saved, is_last_part = clock.elapsed, False
    while clock.share < 1:
        if clock.share >= LAST_PART and not is_last_part:
            is_last_part = True
            rows.settle()
        losses_now = train_step(chooser, optimizer, rows, lesson, clock.share, steps)
        for name, loss in zip(("words", "choice"), losses_now, strict=True):
            figures[name] += (loss - figures[name]) / min(steps + 1, 10)
        steps += 1
        if steps % 50 == 0:
            log(f"{clock.elapsed:6.0f} s  step {steps}  words {figures['words']:.3f}  choice {figures['choice']:.3f}")
        if clock.elapsed - saved > SAVE_SECONDS or clock.share >= 1:
            figures |= held_out(chooser, topics, encoder)
            log(f"{clock.elapsed:6.0f} s  step {steps}  {json.dumps(figures)}")
            if best and figures["opened"] + figures["exact"] >= highest:
                highest = figures["opened"] + figures["exact"]
                torch.save(chooser.state_dict(), best)
            state = {"model": chooser.state_dict(), "optimizer": optimizer.state_dict(), "highest": highest}
            torch.save(state | {"elapsed": clock.elapsed, "steps": steps, "figures": figures}, checkpoint)
            saved = clock.elapsed
    return {name: round(value, 4) for name, value in figures.items()}


def train_step(
    chooser: Chooser, optimizer: torch.optim.Optimizer, rows: Rows, lesson: Lesson, progress: float, steps: int
) -> tuple[float, float]:
    """One optimizer step, in which the first lesson goes on beside; returns the mean losses of words and choices."""
    chooser.train()
    batches = list(packed(lesson.rows_of_step(rows), MICRO_TOKENS))
    weight = float(sum(batch.weights.sum() for batch in batches))
    count = sum(len(batch.choices) for batch in batches)
    total_words = total_choice = 0.0
    for batch in batches:
        with torch.autocast("cpu", torch.bfloat16):
            words, choice = losses(chooser, batch, lesson.before)
        (words / weight + CHOICE_WEIGHT * choice / count).backward()
        total_words += words.item() / weight
        total_choice += choice.item() / count
    drawn = [rows.prompt() for _ in range(lesson.prompts)]
    first_lesson = choice_loss(chooser, [row.tokens for row in drawn], [row.choices[0][1] for row in drawn])
    (CHOICE_WEIGHT * first_lesson).backward()
    nn.utils.clip_grad_norm_(chooser.parameters(), 1.0)
    for group in optimizer.param_groups:
        group["lr"] = group["pace"] * learning_rate(progress, steps, lesson.peak)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total_words, total_choice


def losses(chooser: Chooser, batch: Batch, before: Llama | None) -> tuple[Tensor, Tensor]:
    """Summed losses of the words and of the choices."""
    hidden = chooser.model(batch.tokens, batch.rows, batch.columns)
    thought = F.log_softmax(chooser.model.logits(hidden).float(), -1)
    words = F.nll_loss(thought, batch.targets, reduction="none")
    if before:
        words = words + HELD_SHARE * batch.known * (_held_loss(thought, batch, before) - words)
    scores = chooser.head(hidden[batch.choice_places]).float()
    return words @ batch.weights, F.cross_entropy(scores, batch.choices, reduction="sum", label_smoothing=SMOOTHING)


def _held_loss(thought: Tensor, batch: Batch, before: Llama) -> Tensor:
    """How far what is `thought` of each token is from what the model `before` thinks of it."""
    with torch.no_grad():
        kept = F.softmax(before.logits(before(batch.tokens, batch.rows, batch.columns)).float(), -1)
    return -(kept * thought).sum(-1)


@torch.no_grad()
def held_out(chooser: Chooser, topics: list[Topic], encoder: Encoder) -> dict[str, float]:
    """On one unseen wording a topic: shares named by the head, with the first eight tokens right, and all right."""
    chooser.eval()
    rows, number = [], 0
    for topic in topics:
        for turn in topic.turns[:1]:
            for wording in turn.held_out[:1]:
                row = Row()
                row.add(encoder.question(wording))
                row.choices.append((len(row.tokens) - 1, number))
                answer = encoder.answer(turn.answer)
                row.add(answer, [1.0] * len(answer))
                rows.append(row)
        number += len(topic.turns)
    named = opened = exact = 0
    for start in range(0, len(rows), 64):
        group = rows[start : start + 64]
        batch = batch_of(group)
        with torch.autocast("cpu", torch.bfloat16):
            hidden = chooser.model(batch.tokens, batch.rows, batch.columns)
            choice = chooser.head(hidden[batch.choice_places]).argmax(-1)
            right = chooser.model.logits(hidden).argmax(-1) == batch.targets
        named += int((choice == batch.choices).sum())
        for index in range(len(group)):
            mine = right[batch.rows == index]
            opened += bool(mine[:8].all())
            exact += bool(mine.all())
    return {
        "named": round(named / len(rows), 3),
        "opened": round(opened / len(rows), 3),
        "exact": round(exact / len(rows), 3),
    }
