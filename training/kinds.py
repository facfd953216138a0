"""The kinds of drafters: how each begins, what it learns, how it is written and how it is measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training import measure
from training.data import Answer, draft_ids, read_shard, shards_of
from training.draft import DraftLesson, DraftModel, draft_sizes
from training.eagle3 import Eagle3
from training.learn import Drafter, EagleLesson, MedusaLesson
from training.medusa import Medusa
from training.target import TargetFile
from training.write import write_eagle3, write_llama, write_safetensors


@dataclass(frozen=True)
class Setting:
    """What a drafter is made for and of."""

    target: TargetFile
    answers: Path
    out: Path
    name: str
    vocabulary: int
    layers: tuple[int, ...]
    steps: int = 3
    dropout: float = 0.0

    @property
    def checkpoint(self) -> Path:
        return self.out / f"{self.name}.checkpoint.pt"

    def ids(self) -> NDArray[np.int64]:
        """The draft vocabulary, which is chosen once."""
        if self.checkpoint.exists():
            module = torch.load(self.checkpoint, weights_only=False)["module"]
            if "ids" in module:
                return np.array(module["ids"])
        return draft_ids(self.answers, self.target.sizes.vocabulary, self.vocabulary)


@dataclass(frozen=True)
class Kind:
    """A drafter that can be taught, written and measured."""

    lesson: Drafter
    write: Callable[[], None]
    right: Callable[[list[Answer]], Iterator[tuple[Answer, Tensor]]]


def eagle3(setting: Setting) -> Kind:
    """An EAGLE-3 head, as GGUF."""
    target = setting.target
    head = Eagle3(target.sizes, setting.ids(), setting.dropout)
    states = read_shard(shards_of(setting.answers)[0])[0].states[8:, :3].astype(np.float32)
    head.start_from(target, np.sqrt((states**2).mean((0, 2))))
    embeddings = torch.from_numpy(target.weight("token_embd.weight")).to(torch.bfloat16)
    path = setting.out / f"{setting.name}-q8_0.gguf"
    return Kind(
        EagleLesson(head, embeddings, torch.from_numpy(target.output()), setting.steps),
        lambda: write_eagle3(path, target, target.sizes, setting.layers, head.tensors()),
        lambda answers: measure.eagle_right(head.eval(), embeddings, answers, 3),
    )


def draft(setting: Setting) -> Kind:
    """A draft model, as GGUF."""
    target = setting.target
    model = DraftModel(draft_sizes(target.sizes), target)
    path = setting.out / f"{setting.name}-q8_0.gguf"
    return Kind(
        DraftLesson(model, torch.from_numpy(target.output()), setting.ids()),
        lambda: write_llama(path, target, model.sizes, model.tensors()),
        lambda answers: measure.draft_right(model.eval(), answers, 3),
    )


def medusa(setting: Setting) -> Kind:
    """Three Medusa heads, as safetensors with a config."""
    target, folder = setting.target, setting.out / setting.name
    heads = Medusa(target.sizes, setting.ids(), target)

    def write() -> None:
        folder.mkdir(exist_ok=True)
        write_safetensors(folder / "medusa_lm_head.safetensors", heads.tensors(), {"format": "pt"})
        (folder / "config.json").write_text(json.dumps(heads.config(target.sizes), indent=1) + "\n")

    lesson = MedusaLesson(heads, torch.from_numpy(target.output()))
    return Kind(lesson, write, lambda answers: measure.medusa_right(heads.eval(), answers))


KINDS = {"eagle3": eagle3, "draft": draft, "medusa": medusa}


def move_vocabulary(setting: Setting) -> None:
    """Choose the draft vocabulary of a head's checkpoint anew, from the answers that are there by now.

    What it learned of tokens that stay is kept; the others begin as the target's.
    """
    saved = torch.load(setting.checkpoint, weights_only=False)
    module, target = saved["module"], setting.target
    ids = torch.from_numpy(draft_ids(setting.answers, target.sizes.vocabulary, setting.vocabulary))
    old = {int(token): row for row, token in enumerate(module["ids"])}
    rows = torch.from_numpy(target.output())[ids].clone()
    for row, token in enumerate(ids.tolist()):
        if token in old:
            rows[row] = module["head.weight"][old[token]]
    moments = saved["optimizer"]["state"]
    for index in [key for key, value in moments.items() if value["exp_avg"].shape == module["head.weight"].shape]:
        del moments[index]
    module["ids"], module["head.weight"] = ids, rows
    torch.save(saved, setting.checkpoint)
