"""How good a drafter is, on held-out greedy answers: what drafts of a length would have been accepted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from training.data import Answer, batch_of, grouped, read_shard, shards_of
from training.draft import DraftModel
from training.eagle3 import Eagle3
from training.medusa import Medusa


def walked(right: Tensor, length: int) -> tuple[int, int, int]:
    """Passes, tested and accepted tokens when drafts of `length` begin where the last pass ended.

    `right` [steps, positions]: whether what each step says at a position is the token that came.
    """
    place = passes = tested = accepted = 0
    total = right.shape[1]
    while place < total:
        count = 0
        while count < length and place + count < total and right[count, place + count]:
            count += 1
        tested += min(length, total - place)
        passes, accepted, place = passes + 1, accepted + count, place + count + 1
    return passes, tested, accepted


@torch.no_grad()
def eagle_right(head: Eagle3, embeddings: Tensor, answers: list[Answer], steps: int) -> Iterator[tuple[Answer, Tensor]]:
    """Of each answer, where each step was right."""
    for group in grouped(answers, 3000):
        batch = batch_of(group)
        with torch.autocast("cpu", torch.bfloat16):
            outputs = head.unrolled(
                embeddings[batch.following].float(), batch.states, batch.padding, batch.first, steps
            )
            said = torch.stack([head.ids[head.logits(output).argmax(-1)] for output in outputs])
        for index, answer in enumerate(group):
            yield answer, (said[:, index] == batch.truth[index])[:, : answer.asked]


@torch.no_grad()
def medusa_right(heads: Medusa, answers: list[Answer]) -> Iterator[tuple[Answer, Tensor]]:
    """Of each answer, where each head was right; that of index i at the position i after the one it started from."""
    for answer in answers:
        batch = batch_of([answer])
        right = torch.zeros(len(heads.heads), answer.asked, dtype=torch.bool)
        for index, head in enumerate(heads.heads):
            said = heads.ids[head(batch.last[0]).argmax(-1)]
            later = index + 1
            right[index, later:] = said[: answer.asked - later] == batch.truth[0][later:]
        yield answer, right


@torch.no_grad()
def draft_right(model: DraftModel, answers: list[Answer], steps: int) -> Iterator[tuple[Answer, Tensor]]:
    """Of each answer, where it was right, which is the same for every step."""
    for answer in answers:
        batch = batch_of([answer])
        said = (model(batch)[0] @ model.embedding.t()).argmax(-1)
        yield answer, (said == batch.truth[0]).repeat(steps, 1)


def held_out(folder: Path) -> list[Answer]:
    """The greedy answers of a folder."""
    return [answer for path in shards_of(folder) for answer in read_shard(path) if not answer.heat]


def report(found: Iterator[tuple[Answer, Tensor]], length: int = 3) -> dict[str, float]:
    """Share of tested tokens that were accepted, by kind and length; each step's own share; tokens a pass."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    own, places = torch.zeros(length), 0
    for answer, right in found:
        own, places = own + right[:length].float().sum(-1), places + right.shape[1]
        named = [(answer.kind, length), *((f"drafts of {size}", size) for size in range(1, length + 1))]
        for name, size in named:
            sums[name] = [old + new for old, new in zip(sums[name], walked(right, size), strict=True)]
    figures = {name: round(accepted / max(tested, 1), 3) for name, (_, tested, accepted) in sums.items()}
    figures |= {f"step {index}": round(float(share) / places, 3) for index, share in enumerate(own)}
    for size in range(1, length + 1):
        passes, _, accepted = sums[f"drafts of {size}"]
        figures[f"tokens a pass, drafts of {size}"] = round(1 + accepted / passes, 3)
    return figures
