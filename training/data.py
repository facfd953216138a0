"""Batches of the answers that were generated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

POOL = 4
"""So many shards are shuffled together."""


@dataclass(frozen=True)
class Answer:
    """A prompt with its answer, and the four states of each token."""

    tokens: NDArray[np.int32]
    prompt: int
    states: NDArray[np.float16]
    heat: float
    kind: str

    @property
    def asked(self) -> int:
        """Positions that foresee something: from the prompt's last on, to the one before the last token's."""
        return len(self.tokens) - self.prompt - 1


@dataclass(frozen=True)
class Batch:
    """Rows side by side so that all answers begin at the same place.

    At each position: the token after it, and the target's three states; `last` are the target's last states one
    position later, which say what is to be foreseen, and `truth` the token that came.
    """

    following: Tensor
    states: Tensor
    padding: Tensor
    first: int
    last: Tensor
    truth: Tensor
    valid: Tensor
    greedy: Tensor
    opening: Tensor
    """Each row's first token."""


def read_shard(path: Path) -> list[Answer]:
    """The answers of one file."""
    with np.load(path) as data:
        tokens, states = data["tokens"], data["states"]
        lengths, prompts, facts = data["lengths"], data["prompts"], json.loads(str(data["facts"]))
    ends = np.cumsum(lengths)
    return [
        Answer(tokens[end - length : end], int(prompt), states[end - length : end], fact["heat"], fact["kind"])
        for end, length, prompt, fact in zip(ends, lengths, prompts, facts, strict=True)
        if length - prompt > 3
    ]


def batch_of(answers: Sequence[Answer]) -> Batch:
    """One batch."""
    first = max(answer.prompt for answer in answers) - 1
    asked = max(answer.asked for answer in answers)
    shape = (len(answers), first + asked)
    width = answers[0].states.shape[-1]
    following, states = np.zeros(shape, np.int64), np.zeros((*shape, 3 * width), np.float32)
    last, truth = np.zeros((len(answers), asked, width), np.float32), np.zeros((len(answers), asked), np.int64)
    for row, answer in enumerate(answers):
        start, end = first + 1 - answer.prompt, first + answer.asked
        count = end - start
        following[row, start:end] = answer.tokens[1 : count + 1]
        states[row, start:end] = answer.states[:count, :3].reshape(count, -1)
        last[row, : answer.asked] = answer.states[answer.prompt : answer.prompt + answer.asked, 3]
        truth[row, : answer.asked] = np.append(answer.tokens, 0)[answer.prompt + 1 : answer.prompt + 1 + answer.asked]
    sizes = torch.tensor([answer.asked for answer in answers])
    return Batch(
        torch.from_numpy(following), torch.from_numpy(states),
        torch.tensor([first + 1 - answer.prompt for answer in answers]), first,
        torch.from_numpy(last), torch.from_numpy(truth), torch.arange(asked)[None] < sizes[:, None],
        torch.tensor([not answer.heat for answer in answers]),
        torch.tensor([int(answer.tokens[0]) for answer in answers]),
    )  # fmt: skip


def grouped(answers: list[Answer], tokens: int) -> list[list[Answer]]:
    """Groups of about as long answers, each with about so many positions."""
    groups: list[list[Answer]] = []
    for answer in sorted(answers, key=lambda one: one.asked):
        if not groups or (len(groups[-1]) + 1) * answer.asked > tokens:
            groups.append([])
        groups[-1].append(answer)
    return groups


def shards_of(folder: Path) -> list[Path]:
    """All that are there now."""
    return sorted(folder.glob("*.npz"))


def batches(folder: Path, seed: int, tokens: int) -> Iterator[Batch]:
    """Batches without end, of the shards that were taken least often; a new one counts as taken like those."""
    random = np.random.default_rng(seed)
    taken: dict[Path, int] = {}
    while True:
        lowest = min(taken.values(), default=0)
        taken = {path: taken.get(path, lowest) for path in shards_of(folder)}
        rare = [path for path, times in taken.items() if times == min(taken.values())]
        pool = [rare[index] for index in random.permutation(len(rare))[:POOL]]
        taken |= {path: taken[path] + 1 for path in pool}
        groups = grouped([answer for path in pool for answer in read_shard(path)], tokens)
        for index in random.permutation(len(groups)):
            yield batch_of(groups[index])


def frequencies(folder: Path, vocabulary: int) -> NDArray[np.int64]:
    """How often each token comes in the answers."""
    counts = np.zeros(vocabulary, np.int64)
    for path in shards_of(folder):
        for answer in read_shard(path):
            counts += np.bincount(answer.tokens[answer.prompt :], minlength=vocabulary)
    return counts


def draft_ids(folder: Path, vocabulary: int, size: int) -> NDArray[np.int64]:
    """The most frequent tokens in ascending order; where some never came, those of low id, which are frequent."""
    counts = frequencies(folder, vocabulary)
    order = np.lexsort((np.arange(vocabulary), -counts))
    return np.sort(order[:size]).astype(np.int64)
