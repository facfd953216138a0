"""The target's first lesson: which answer a question asks for, taught to its first layer alone, at the last token.

Knowing the answer that an unseen wording asks for is the hard part, and a pooled look at the words is the right start
for it: so the embedding and the first layer learn it by themselves, ten times cheaper than the whole model would.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from guide.batches import Rows
from guide.clock import SAVE_SECONDS, Clock
from guide.corpus import Topic
from guide.model import Llama
from guide.tokenizer import END, Encoder

PROMPTS_A_STEP = 256
SMOOTHING = 0.1


class Chooser(nn.Module):
    """The target with a head that names the answer to come; the head only teaches and is left out of the file."""

    def __init__(self, model: Llama, choices: int) -> None:
        super().__init__()
        self.model = model
        self.head = nn.Linear(model.shape.width, choices)


def teach_choice(
    chooser: Chooser,
    topics: list[Topic],
    encoder: Encoder,
    folder: Path,
    minutes: float,
    *,
    peak: float = 2e-3,
    log: Callable[[str], None] = print,
) -> None:
    """Train embedding, first layer and head for `minutes`, or go on with the checkpoint in `folder`.

    The first layer starts out as looking at all tokens alike (73 % instead of 66 % right after four minutes), the
    layers above as passing on what they get.
    """
    rows = Rows(topics, encoder, seed=3)
    model = chooser.model
    attention = model.layers[0].attention
    with torch.no_grad():
        attention.q.weight.mul_(0.1)
        attention.k.weight.mul_(0.1)
        attention.o.weight.mul_(3)
    for layer in model.layers[1:]:
        nn.init.normal_(layer.attention.o.weight, std=1e-3)
        nn.init.normal_(layer.down.weight, std=1e-3)
    learned = [
        *model.embedding.parameters(),
        *model.layers[0].parameters(),
        *model.norm.parameters(),
        *chooser.head.parameters(),
    ]
    optimizer = torch.optim.AdamW(learned, lr=peak, betas=(0.9, 0.98), weight_decay=0.02, fused=True)
    checkpoint = folder / "lesson.checkpoint.pt"
    used, steps, mean = 0.0, 0, 6.0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        chooser.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        used, steps, mean = state["elapsed"], state["steps"], state["mean"]
        rows = Rows(topics, encoder, seed=3 + steps)
    clock, saved = Clock(minutes * 60, used), time.monotonic()
    chooser.train()
    while clock.share < 1:
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1.0, (steps + 1) / 40) * max(0.02, 1 - clock.share)
        drawn = [rows.prompt() for _ in range(PROMPTS_A_STEP)]
        loss = choice_loss(chooser, [row.tokens for row in drawn], [row.choices[0][1] for row in drawn])
        loss.backward()
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean, steps = mean + 0.05 * (loss.item() - mean), steps + 1
        if steps % 40 == 0:
            right = held_out_choice(chooser, topics, encoder)
            log(f"{clock.elapsed:6.0f} s  lesson step {steps}  choice {mean:.3f}  held out {right:.3f}")
        if time.monotonic() - saved > SAVE_SECONDS:
            state = {"model": chooser.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"elapsed": clock.elapsed, "steps": steps, "mean": mean}, checkpoint)
            saved = time.monotonic()


def choice_loss(chooser: Chooser, prompts: list[list[int]], choices: list[int]) -> torch.Tensor:
    """Mean loss; long prompts (dialogues) and short ones apart, to save padding."""
    total = torch.zeros(())
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    with torch.autocast("cpu", torch.bfloat16):
        for part in (order[: len(order) * 3 // 4], order[len(order) * 3 // 4 :]):
            scores = chooser.head(_summary(chooser.model, [prompts[index] for index in part]))
            targets = torch.tensor([choices[index] for index in part])
            total = total + F.cross_entropy(scores.float(), targets, label_smoothing=SMOOTHING, reduction="sum")
    return total / len(prompts)


def _summary(model: Llama, prompts: list[list[int]]) -> torch.Tensor:
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    longest = int(lengths.max())
    return model.summary(torch.tensor([prompt + [END] * (longest - len(prompt)) for prompt in prompts]), lengths)


@torch.no_grad()
def held_out_choice(chooser: Chooser, topics: list[Topic], encoder: Encoder) -> float:
    """Share of unseen first questions for which the first layer names the right answer."""
    chooser.eval()
    right = asked = number = 0
    for topic in topics:
        prompts = [encoder.question(wording) for wording in topic.turns[0].held_out]
        if prompts:
            right += int((chooser.head(_summary(chooser.model, prompts)).argmax(-1) == number).sum())
            asked += len(prompts)
        number += len(topic.turns)
    chooser.train()
    return right / asked
