"""Makes the bundled pair from the corpus, from scratch: `python -m guide.make` in `packaging/`.

A run that was broken off goes on where it last saved, as long as the work folder is the same and the corpus unchanged.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.metadata
import json
import pickle
import time
from dataclasses import asdict
from pathlib import Path

import torch

from guide import evaluate
from guide.convert import write_gguf
from guide.corpus import Topic, corpus_hash, load_corpus
from guide.distil import own_answers, prompts_of, train_draft
from guide.model import DRAFT, TARGET, Llama
from guide.questions import held_out
from guide.tokenizer import Encoder, train_tokenizer
from guide.train import Lesson, train_target

WORK = evaluate.ROOT / "build" / "guide"
ROUNDS = 6
OPENING_ROUNDS = 20
DRAFT_LENGTH = 5
PROVENANCE = evaluate.RESOURCES / "PROVENANCE.json"


class Log:
    """Prints, and keeps what was printed in the work folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = time.monotonic()

    def __call__(self, line: str) -> None:
        line = f"{time.monotonic() - self._start:7.0f}  {line}"
        print(line, flush=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def make(options: argparse.Namespace) -> None:
    start = time.monotonic()
    topics = load_corpus()
    work: Path = options.work / corpus_hash()[:12]
    work.mkdir(parents=True, exist_ok=True)
    log = Log(work / "log.txt")
    vocabulary = tokenizer_of(topics, work)
    encoder = Encoder(vocabulary)
    torch.set_num_threads(options.threads)
    target, losses = train_target(
        topics, encoder, TARGET, work, Lesson(options.minutes), choice_minutes=options.choice_minutes, log=log
    )
    write_gguf(target, vocabulary, work / evaluate.TARGET.name, f"Slipstream Guide {millions(target)}M")
    log(f"target: {target.parameter_count():,} parameters")
    samples = answers_of_target(topics, encoder, work, log)
    torch.manual_seed(2)
    draft = Llama(DRAFT)
    losses["draft"] = train_draft(samples, draft, work / "draft.checkpoint.pt", options.draft_minutes, log=log)
    name = f"Slipstream Guide draft {millions(draft)}M"
    write_gguf(draft, vocabulary, work / evaluate.DRAFT.name, name, options.draft_length)
    log(f"draft: {draft.parameter_count():,} parameters")
    figures = measure(topics, work, None, work / "held-out-answers.jsonl")
    log(json.dumps(figures))
    minutes = {"choice": options.choice_minutes, "target": options.minutes, "draft": options.draft_minutes}
    ship(
        work,
        {
            "script": "packaging/guide/make.py",
            "files": {
                "target": file_facts(work / evaluate.TARGET.name) | shape_facts(target),
                "draft": file_facts(work / evaluate.DRAFT.name) | shape_facts(draft),
            },
            "draft_length": options.draft_length,
            "corpus": corpus_facts(topics),
            "losses": losses,
            "held_out": figures,
            "minutes": minutes,
            "seconds": round(time.monotonic() - start),
        },
    )


def tokenizer_of(topics: list[Topic], work: Path) -> Path:
    path = work / "tokenizer.json"
    if not path.exists():
        turns = [turn for topic in topics for turn in topic.turns]
        texts = [text for turn in turns for text in (*(f" {wording}" for wording in turn.train), turn.answer)]
        train_tokenizer(texts).save(str(path))
    return path


def answers_of_target(topics: list[Topic], encoder: Encoder, work: Path, log: Log) -> list:
    """What the finished target says to training wordings; kept in the work folder."""
    path = work / "answers.pickle"
    if not path.exists():
        prompts = prompts_of(topics, encoder, ROUNDS, seed=4)
        openings = prompts_of(topics, encoder, OPENING_ROUNDS, seed=5)
        log(f"{len(prompts)} answers and {len(openings)} openings for the draft")
        path.write_bytes(pickle.dumps(own_answers(work / evaluate.TARGET.name, prompts, openings)))
    return pickle.loads(path.read_bytes())


def measure(topics: list[Topic], folder: Path, questions: int | None, answers: Path, threads: int = 2) -> dict:
    """Held-out figures of the pair in `folder` with the app's engine; the speed only roughly, on a busy machine."""
    pair = evaluate.Pair(folder / evaluate.TARGET.name, folder / evaluate.DRAFT.name, threads)
    asked = held_out(topics)[:questions]
    figures = asdict(evaluate.quality(pair, asked, pair.draft_length, answers))
    speeds = evaluate.speed(pair, asked[:60], [pair.draft_length])
    return figures | {"tokens_per_second": speeds}


def ship(work: Path, provenance: dict) -> None:
    """Put the pair in `work` where the app finds it, and where it comes from beside it."""
    evaluate.RESOURCES.mkdir(parents=True, exist_ok=True)
    for path in (evaluate.TARGET, evaluate.DRAFT):
        path.write_bytes((work / path.name).read_bytes())
    made = {"made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"), "licence": "MIT"}
    versions = {
        name: importlib.metadata.version(name) for name in ("torch", "tokenizers", "gguf", "numpy", "llama-cpp-python")
    }
    text = json.dumps(made | provenance | {"versions": versions}, indent=2)
    PROVENANCE.write_text(text + "\n", encoding="utf-8")


def corpus_facts(topics: list[Topic]) -> dict:
    turns = [turn for topic in topics for turn in topic.turns]
    return {
        "sha256": corpus_hash(),
        "topics": len(topics),
        "training_wordings": sum(len(turn.train) for turn in turns),
        "held_out_wordings": sum(len(turn.held_out) for turn in turns),
    }


def file_facts(path: Path) -> dict:
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def shape_facts(model: Llama) -> dict:
    return {"parameters": model.parameter_count(), "shape": asdict(model.shape)}


def millions(model: Llama) -> int:
    return round(model.parameter_count() / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--choice-minutes", type=float, default=8, help="first lesson: which answer (default 8)")
    parser.add_argument("--minutes", type=float, default=70, help="the whole target after it (default 70)")
    parser.add_argument("--draft-minutes", type=float, default=15)
    parser.add_argument("--draft-length", type=int, default=DRAFT_LENGTH, help="written into the draft's metadata")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=WORK, help="folder for checkpoints and logs")
    make(parser.parse_args())


if __name__ == "__main__":
    main()
