"""Answers of the target to composed prompts, many at once, with the hidden states that drafters learn from.

Each shard holds the tokens of some answers, each behind its prompt, and of every token the inputs of three layers and
the last hidden state. It is written when it is full, so that a run that was stopped goes on with the next shard.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment
from numpy.typing import NDArray

from training.prompts import Composer, Messages, Prompt

SHARD_TOKENS = 12_000
TEMPERATURE = 0.7
BELOW_BEST = 9.0
"""Logits so far below the best one are never drawn."""


@dataclass(frozen=True)
class Plan:
    """What is generated: `layers` are those whose inputs are kept."""

    model: Path
    folder: Path
    seed: int
    layers: tuple[int, int, int]
    forbidden: frozenset[tuple[str, ...]] = frozenset()
    held_out: bool = False
    """Topics that are never trained on, all answers greedy, one a sequence."""
    parallel: int = 128
    prompt_limit: int = 384
    answer_limit: int = 256
    threads: int = 1


@dataclass
class Row:
    """An answer in the making."""

    prompt: Prompt
    tokens: list[int]
    prompt_length: int
    heat: float
    states: NDArray[np.float16]
    filled: int = 0
    done: bool = False


def rendered(template: str, messages: Messages) -> str:
    """The prompt as the model's own template puts it."""
    turns = [{"role": role, "content": text} for role, text in messages]
    return ImmutableSandboxedEnvironment().from_string(template).render(messages=turns, add_generation_prompt=True)


def exported(name: str, arguments: str, result: Any, *types: Any) -> Callable[..., Any]:
    """A C++ function of llama.cpp that isn't in its header, by its name as GCC and Clang spell it."""
    function = getattr(llama_cpp.llama_cpp._lib, f"_Z{len(name)}{name}P13llama_context{arguments}")
    function.restype, function.argtypes = result, [llama_cpp.llama_context_p_ctypes, *types]
    return function  # type: ignore[no-any-return]


class Target:
    """The model with a context of many sequences, which hands over its hidden states."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(bytes(plan.model), llama_cpp.llama_model_default_params())
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.template: str = (llama_cpp.llama_model_chat_template(self.model, None) or b"").decode()
        self.size = llama_cpp.llama_vocab_n_tokens(self.vocabulary)
        self.width = llama_cpp.llama_model_n_embd(self.model)
        settings = llama_cpp.llama_context_default_params()
        self.room = plan.prompt_limit + plan.answer_limit
        settings.n_ctx, settings.n_seq_max, settings.kv_unified = self.room * plan.parallel, plan.parallel, False
        settings.n_batch = settings.n_ubatch = max(512, plan.parallel)
        settings.n_threads = settings.n_threads_batch = plan.threads
        settings.embeddings = True
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        self.batch = llama_cpp.llama_batch_init(settings.n_batch, 0, 1)
        switch = exported("llama_set_embeddings_layer_inp", "jb", None, ctypes.c_uint32, ctypes.c_bool)
        floats = ctypes.POINTER(ctypes.c_float)
        self._inputs = exported("llama_get_embeddings_layer_inp", "j", floats, ctypes.c_uint32)
        for layer in plan.layers:
            switch(self.context, layer, True)

    def tokens_of(self, text: str) -> list[int]:
        """Its tokens, special ones as such."""
        data = text.encode()
        space = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self.vocabulary, data, len(data), space, len(space), False, True)
        return list(space[:count])

    def text_of(self, tokens: list[int]) -> str:
        """The text of `tokens` without special ones."""
        space = ctypes.create_string_buffer(64)
        parts = []
        for token in tokens:
            count = llama_cpp.llama_token_to_piece(self.vocabulary, token, space, 64, 0, False)
            parts.append(space.raw[: max(count, 0)])
        return b"".join(parts).decode(errors="replace")

    def is_end(self, token: int) -> bool:
        """Whether `token` ends an answer."""
        return bool(llama_cpp.llama_vocab_is_eog(self.vocabulary, token))

    def decode(self, entries: list[tuple[int, int, int]]) -> tuple[NDArray[np.float32], NDArray[np.float16]]:
        """Process tokens, each with its position and sequence; returns logits and states of all of them."""
        batch = self.batch
        batch.n_tokens = len(entries)
        for index, (token, position, sequence) in enumerate(entries):
            batch.token[index], batch.pos[index], batch.logits[index] = token, position, 1
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
        if llama_cpp.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")
        shape = (len(entries), self.width)
        views = [self._inputs(self.context, layer) for layer in self._plan.layers]
        views.append(llama_cpp.llama_get_embeddings(self.context))
        states = np.stack([np.ctypeslib.as_array(view, shape) for view in views], 1).astype(np.float16)
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(self.context), (len(entries), self.size))
        return logits, states

    def forget(self, sequence: int) -> None:
        """Empty a sequence's cache."""
        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(self.context), sequence, -1, -1)


class Shard:
    """Finished answers that wait to be written."""

    def __init__(self, folder: Path, seed: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._seed = folder, seed
        self.number = len(list(folder.glob(f"{seed}-*.npz")))
        self._rows: list[Row] = []

    def add(self, row: Row) -> bool:
        """Add one; returns whether that filled the shard, which then was written."""
        row.states = row.states[: row.filled].copy()
        self._rows.append(row)
        if sum(len(row.states) for row in self._rows) < SHARD_TOKENS:
            return False
        self.write()
        return True

    def write(self) -> None:
        """Write what waits, whole or not at all."""
        if not self._rows:
            return
        facts = [{"kind": row.prompt.kind, "heat": row.heat, "messages": row.prompt.messages} for row in self._rows]
        path = self._folder / f"{self._seed}-{self.number:04}.npz"
        with path.with_suffix(".part").open("wb") as file:
            np.savez(
                file,
                tokens=np.concatenate([row.tokens[: len(row.states)] for row in self._rows]).astype(np.int32),
                lengths=np.array([len(row.states) for row in self._rows], np.int32),
                prompts=np.array([row.prompt_length for row in self._rows], np.int32),
                states=np.concatenate([row.states for row in self._rows]),
                facts=np.array(json.dumps(facts)),
            )
        path.with_suffix(".part").rename(path)
        self.number, self._rows = self.number + 1, []


class Generator:
    """Keeps all sequences busy: whenever an answer is done, the next prompt takes its place."""

    def __init__(self, plan: Plan, log: Callable[[str], None] = print) -> None:
        self._plan, self._log = plan, log
        self.target = Target(plan)
        self.shard = Shard(plan.folder, plan.seed)
        stream = plan.seed * 10_000 + self.shard.number
        self.composer = Composer(stream, held_out=plan.held_out, forbidden=plan.forbidden)
        self._random = np.random.default_rng(stream)
        self.rows: list[Row] = []
        self.generated = 0

    def run(self, seconds: float, most_tokens: int) -> None:
        """Generate for so long, or so much."""
        started = said = time.monotonic()
        for sequence in range(self._plan.parallel):
            self.rows.append(self._start(sequence))
        while time.monotonic() - started < seconds and self.generated < most_tokens:
            self._step()
            if all(row.done for row in self.rows):
                break
            if time.monotonic() - said > 30:
                said = time.monotonic()
                self._log(f"{said - started:6.0f} s  {self.generated} tokens  {self.shard.number} shards")
        self.shard.write()

    def _prompt(self) -> tuple[Prompt, list[int]]:
        while True:
            prompt = self.composer.compose()
            tokens = self.target.tokens_of(rendered(self.target.template, prompt.messages))
            if len(tokens) <= self._plan.prompt_limit:
                return prompt, tokens

    def _start(self, sequence: int) -> Row:
        prompt, tokens = self._prompt()
        states = np.zeros((self.target.room, 4, self.target.width), np.float16)
        row = Row(prompt, tokens, len(tokens), self._heat(), states)
        self.target.forget(sequence)
        entries = [(token, position, sequence) for position, token in enumerate(tokens)]
        logits, found = self.target.decode(entries)
        states[: len(tokens)] = found
        row.filled = len(tokens)
        row.tokens.append(self._drawn(logits[-1], row.heat))
        return row

    def _heat(self) -> float:
        return 0.0 if self._plan.held_out or self._random.random() < 0.5 else TEMPERATURE

    def _drawn(self, logits: NDArray[np.float32], heat: float) -> int:
        best = int(logits.argmax())
        if not heat:
            return best
        kept = np.flatnonzero(logits > logits[best] - BELOW_BEST * heat)
        chances = np.exp((logits[kept] - logits[best]) / heat)
        return int(kept[np.searchsorted(np.cumsum(chances), self._random.random() * chances.sum())])

    def _step(self) -> None:
        entries = [(row.tokens[-1], row.filled, sequence) for sequence, row in enumerate(self.rows)]
        logits, states = self.target.decode(entries)
        self.generated += len(entries)
        for sequence, row in enumerate(self.rows):
            if not row.done:
                row.states[row.filled] = states[sequence]
                full = row.filled + 1 - row.prompt_length >= self._plan.answer_limit
                row.done = full or self.target.is_end(row.tokens[-1])
            row.filled += 1
            if not row.done:
                row.tokens.append(self._drawn(logits[sequence], row.heat))
        self._replace()

    def _replace(self) -> None:
        for sequence, row in enumerate(self.rows):
            if not row.done or row.filled > len(row.tokens):
                continue
            if row.heat == 0 or self._random.random() < 0.5:
                self.composer.remember(row.prompt, self.target.text_of(row.tokens[row.prompt_length :]).strip())
            self.shard.add(row)
            if not self._plan.held_out:
                self.rows[sequence] = self._start(sequence)
