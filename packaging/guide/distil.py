"""Trains the draft on the target's own answers to varied wordings, and on what the target thought of each token."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from guide.augment import vary
from guide.clock import SAVE_SECONDS, Clock
from guide.corpus import Topic
from guide.generate import Answer, Generator
from guide.model import Llama
from guide.tokenizer import Encoder
from guide.train import optimizer_of

STEP_TOKENS = 3000
OPENING_TOKENS = 16


@dataclass
class Sample:
    """A conversation's tokens; from `start` on, what the target thought of each next token."""

    tokens: list[int]
    start: int
    ids: np.ndarray
    probabilities: np.ndarray


def prompts_of(topics: Sequence[Topic], encoder: Encoder, rounds: int, seed: int) -> list[list[int]]:
    """For each turn `rounds` questions in varied training wordings, after the turns before it."""
    rng = random.Random(seed)
    turns = [(topic, place) for topic in topics for place in range(len(topic.turns))]
    prompts = []
    for topic, place in turns * rounds:
        prompt: list[int] = []
        for turn in topic.turns[:place]:
            prompt += encoder.question(rng.choice(turn.train)) + encoder.answer(turn.answer)
        wording = rng.choice(topic.turns[place].train)
        varied = rng.random() < 0.6
        prompts.append(prompt + encoder.question(vary(wording, rng) if varied else wording))
    return prompts


def own_answers(target: Path, prompts: list[list[int]], openings: list[list[int]], threads: int = 2) -> list[Sample]:
    """What the target says to `prompts`, three of four greedy, the rest sampled, and how it begins to `openings`.

    Which answer it gives is the hard part for the draft too, and a beginning is quickly written.
    """
    generator = Generator(target, threads)
    cut = len(prompts) * 3 // 4
    answers = generator.answer(prompts[:cut]) + generator.answer(prompts[cut:], temperature=0.8, seed=1)
    answers += generator.answer(openings, longest=OPENING_TOKENS)
    generator.close()
    return [_sample(answer) for answer in answers]


def _sample(answer: Answer) -> Sample:
    tokens = [*answer.prompt, *answer.tokens]
    return Sample(tokens, len(answer.prompt) - 1, np.stack(answer.ids), np.stack(answer.probabilities))


def train_draft(
    samples: list[Sample],
    model: Llama,
    checkpoint: Path,
    minutes: float,
    *,
    peak: float = 3e-3,
    now: Callable[[], float] = time.monotonic,
    log: Callable[[str], None] = print,
) -> float:
    """Train `model`, or go on with `checkpoint`, until `minutes` by `now` are over; returns the mean loss."""
    optimizer = optimizer_of(model, peak)
    used, steps, loss = 0.0, 0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        used, steps, loss = state["elapsed"], state["steps"], state["loss"]
    clock = Clock(minutes * 60, used, now)
    rng = random.Random(2 + steps)
    deck: list[list[Sample]] = []
    said = saved = clock.elapsed
    while clock.share < 1:
        deck = deck or _groups(samples, rng)
        group = deck.pop()
        for setting in optimizer.param_groups:
            setting["lr"] = peak * min(1.0, (steps + 1) / 60) * max(0.01, 1 - clock.share)
        loss += 0.02 * (_step(model, optimizer, group) - loss) if steps else _step(model, optimizer, group)
        steps += 1
        if clock.elapsed - said > 30:
            log(f"{clock.elapsed:6.0f} s  step {steps}  draft {loss:.3f}")
            said = clock.elapsed
        if clock.elapsed - saved > SAVE_SECONDS or clock.share >= 1:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"elapsed": clock.elapsed, "steps": steps, "loss": loss}, checkpoint)
            saved = clock.elapsed
    model.eval()
    return loss


def _groups(samples: list[Sample], rng: random.Random) -> list[list[Sample]]:
    """All samples in groups of like length, in random order."""
    ordered = sorted(samples, key=lambda sample: len(sample.tokens) + rng.random() * 8)
    groups: list[list[Sample]] = [[]]
    for sample in ordered:
        if groups[-1] and len(sample.tokens) * (len(groups[-1]) + 1) > STEP_TOKENS:
            groups.append([])
        groups[-1].append(sample)
    rng.shuffle(groups)
    return groups


def _step(model: Llama, optimizer: torch.optim.Optimizer, group: list[Sample]) -> float:
    tokens, rows, columns, ids, probabilities = _tensors(group)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model.logits(model(tokens, rows, columns))
    scores = F.log_softmax(logits.float(), -1).gather(1, ids)
    loss = -(scores * probabilities).sum(-1).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def _tensors(group: list[Sample]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    length = max(len(sample.tokens) for sample in group)
    tokens = torch.tensor([sample.tokens + [0] * (length - len(sample.tokens)) for sample in group])
    rows = torch.tensor([row for row, sample in enumerate(group) for _ in range(len(sample.ids))])
    columns = torch.tensor([sample.start + step for sample in group for step in range(len(sample.ids))])
    ids = torch.from_numpy(np.concatenate([sample.ids for sample in group]))
    probabilities = torch.from_numpy(np.concatenate([sample.probabilities for sample in group]))
    return tokens, rows, columns, ids, probabilities / probabilities.sum(-1, keepdim=True)
