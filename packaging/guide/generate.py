"""Answers many questions at once with llama.cpp and keeps what the model thought of each next token."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import llama_cpp
import numpy as np

from guide.tokenizer import END

PARALLEL = 24
BATCH = 2048
ROOM = 2048
LIKELIEST = 8
_QUIET = llama_cpp.llama_log_callback(lambda *_: None)


@dataclass
class Answer:
    """Token ids (the end marker last, unless cut off) and, for each, the likeliest ids with their probabilities."""

    prompt: Sequence[int]
    tokens: list[int] = field(default_factory=list)
    ids: list[np.ndarray] = field(default_factory=list)
    probabilities: list[np.ndarray] = field(default_factory=list)


class Generator:
    """A model in llama.cpp that answers `PARALLEL` prompts side by side."""

    def __init__(self, path: Path, threads: int = 2) -> None:
        llama_cpp.llama_backend_init()
        llama_cpp.llama_log_set(_QUIET, ctypes.c_void_p(0))
        parameters = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx, settings.n_seq_max = ROOM * PARALLEL, PARALLEL
        settings.n_batch, settings.n_ubatch = BATCH, 512
        settings.n_threads = settings.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    def close(self) -> None:
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)

    def answer(
        self, prompts: Sequence[Sequence[int]], *, temperature: float = 0.0, longest: int = 260, seed: int = 0
    ) -> list[Answer]:
        """Answers in the order of `prompts`; `longest` is in tokens."""
        random = np.random.default_rng(seed)
        answers = [Answer(prompt) for prompt in prompts]
        waiting = list(reversed(answers))
        seats: list[Answer | None] = [None] * PARALLEL
        while waiting or any(seats):
            self._fill(seats, waiting)
            for seat, row in self._decode(seats):
                answer = seats[seat]
                assert answer is not None
                token = _choose(answer, row, temperature, random)
                if token == END or len(answer.tokens) >= longest:
                    seats[seat] = None
                    llama_cpp.llama_memory_seq_rm(self._memory, seat, -1, -1)
        return answers

    def _fill(self, seats: list[Answer | None], waiting: list[Answer]) -> None:
        """Give free seats to waiting prompts, as many as one batch takes beside the answers under way."""
        room = BATCH - PARALLEL
        for seat in range(PARALLEL):
            if seats[seat] is None and waiting and len(waiting[-1].prompt) <= room:
                seats[seat] = waiting.pop()
                room -= len(seats[seat].prompt)

    def _decode(self, seats: list[Answer | None]) -> list[tuple[int, np.ndarray]]:
        """One pass for all seats; the logits after the last token of each."""
        batch, count = self._batch, 0
        last: list[tuple[int, int]] = []
        for seat, answer in enumerate(seats):
            if answer is None:
                continue
            start = len(answer.prompt) + len(answer.tokens) - 1 if answer.tokens else 0
            for offset, token in enumerate(answer.tokens[-1:] or answer.prompt):
                batch.token[count], batch.pos[count] = token, start + offset
                batch.n_seq_id[count], batch.seq_id[count][0], batch.logits[count] = 1, seat, 0
                count += 1
            batch.logits[count - 1] = 1
            last.append((seat, count - 1))
        batch.n_tokens = count
        if llama_cpp.llama_decode(self._context, batch):
            raise RuntimeError("llama_decode failed")
        return [(seat, self._logits(index)) for seat, index in last]

    def _logits(self, index: int) -> np.ndarray:
        pointer = llama_cpp.llama_get_logits_ith(self._context, index)
        return np.ctypeslib.as_array(pointer, (self._vocabulary,))


def _choose(answer: Answer, logits: np.ndarray, temperature: float, random: np.random.Generator) -> int:
    """Append the next token and what the model thought of it."""
    ids = np.argpartition(logits, -LIKELIEST)[-LIKELIEST:]
    scores = np.exp(logits[ids] - logits.max())
    probabilities = scores / np.exp(logits - logits.max()).sum()
    if temperature:
        warmed = probabilities ** (1 / temperature)
        token = int(random.choice(ids, p=warmed / warmed.sum()))
    else:
        token = int(ids[probabilities.argmax()])
    answer.tokens.append(token)
    answer.ids.append(ids.astype(np.int64))
    answer.probabilities.append(probabilities.astype(np.float32))
    return token
