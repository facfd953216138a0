"""Teaches the shipped pair what changed in the corpus: `python -m guide.finetune --before FOLDER` in `packaging/`.

It goes on from the weights in the GGUF files at a low rate, with all topics, the changed and new ones drawn more often,
and is held to what the shipped target thinks of the answers it knows: else it forgets which of them is asked for.
Time is counted as CPU time, so that a run may be stopped and continued. The vocabulary stays as it is. The new pair is
left in the work folder, beside its answers to held-out questions; with `--ship` it is put in place once they are read.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from guide import evaluate
from guide.batches import Rows
from guide.choose import Chooser, choice_loss, held_out_choice
from guide.clock import Clock
from guide.convert import read_gguf, read_vocabulary, write_gguf
from guide.corpus import Topic, corpus_hash, load_corpus
from guide.distil import Sample, own_answers, prompts_of, train_draft
from guide.make import (
    DRAFT_LENGTH,
    PROVENANCE,
    WORK,
    Log,
    corpus_facts,
    file_facts,
    measure,
    millions,
    shape_facts,
    ship,
)
from guide.model import Llama
from guide.questions import blind, labels
from guide.tokenizer import Encoder
from guide.train import HELD_SHARE, Lesson, held_out, teach

HEAD_PROMPTS = 512
HEAD_PEAK = 5e-3
ROUNDS, OPENING_ROUNDS = 2, 12
DROPOUT = 0.1
LEAST_ACCEPTANCE, MOST_LOST = 0.90, 0.02
"""With the same questions, a new pair's acceptance rate may be so much lower than that of the pair in place, but never
below the first: that its answers are true counts for more."""


def finetune(options: argparse.Namespace) -> None:
    """Train, and measure the old pair and the new one with the same questions."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(6)
    topics = load_corpus()
    check_questions(topics)
    changed = changed_topics(load_corpus(options.before), topics)
    work = work_folder(options)
    work.mkdir(parents=True, exist_ok=True)
    log = Log(work / "log.txt")
    log(f"{len(changed)} topics are new or changed: {', '.join(sorted(changed))}")
    vocabulary = work / "tokenizer.json"
    read_vocabulary(evaluate.TARGET, vocabulary)
    encoder = Encoder(vocabulary)
    target, losses = go_on_with_target(topics, changed, encoder, work, options, log)
    write_gguf(target, vocabulary, work / evaluate.TARGET.name, f"Slipstream Guide {millions(target)}M")
    samples = answers_of_target(topics, changed, encoder, work, options, log)
    draft, losses["draft"] = go_on_with_draft(samples, work, options, log)
    name = f"Slipstream Guide draft {millions(draft)}M"
    write_gguf(draft, vocabulary, work / evaluate.DRAFT.name, name, DRAFT_LENGTH)
    before = figures_of(evaluate.RESOURCES, topics, changed, options, work / "answers-before.jsonl")
    after = figures_of(work, topics, changed, options, work / "answers-after.jsonl")
    log(f"before {json.dumps(before)}")
    log(f"after  {json.dumps(after)}")
    models = {"target": target, "draft": draft}
    provenance = {
        "script": "packaging/guide/finetune.py",
        "files": facts_of(work, models),
        "draft_length": DRAFT_LENGTH,
        "corpus": corpus_facts(topics),
        "losses": losses,
        "held_out": after,
        "fine_tuned": what_was_done(options, changed) | {"held_out_before": before},
        "before": json.loads(PROVENANCE.read_text(encoding="utf-8")),
    }
    (work / PROVENANCE.name).write_text(json.dumps(provenance, indent=2) + "\n", encoding="utf-8")


def figures_of(
    folder: Path, topics: list[Topic], changed: set[str], options: argparse.Namespace, answers: Path
) -> dict:
    """Held-out figures of the pair in `folder`, changed topics and the others apart too, blind questions and labels."""
    figures = measure(topics, folder, options.questions, answers, options.threads)
    figures |= shares_of_others(topics, folder, options.threads)
    given = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    for name, is_in in (("changed", True), ("others", False)):
        right = [answer["right"] for answer in given if answer["facts"] and (answer["topic"] in changed) == is_in]
        figures[name] = {"questions": len(right), "right": sum(right)}
    return figures


def shares_of_others(topics: list[Topic], folder: Path, threads: int) -> dict[str, float]:
    """Share of the blind questions that the pair in `folder` answers with all their facts, and of those about labels
    that get their own answer.
    """
    pair = evaluate.Pair(folder / evaluate.TARGET.name, folder / evaluate.DRAFT.name, threads)
    about_labels = labels(topics)
    return {
        "blind": evaluate.quality(pair, blind(topics), pair.draft_length).facts,
        "labels": evaluate.own_share(about_labels, evaluate.missed(pair, about_labels, topics)),
    }


def check_questions(topics: list[Topic]) -> None:
    """Raise now rather than after the training where a question to measure with asks for no topic."""
    blind(topics)
    if not labels(topics):
        raise ValueError("No label has a topic of the corpus.")


def work_folder(options: argparse.Namespace) -> Path:
    return options.work / f"finetune-{corpus_hash()[:12]}"


def put_in_place(work: Path) -> None:
    """Ship the finished run in `work`; raises SystemExit where it is worse than the pair in place, same questions."""
    provenance = json.loads((work / PROVENANCE.name).read_text(encoding="utf-8"))
    before, after = provenance["fine_tuned"]["held_out_before"], provenance["held_out"]
    worse = any(after[share] < before[share] for share in ("facts", "blind", "labels"))
    if worse or after["acceptance"] < max(LEAST_ACCEPTANCE, before["acceptance"] - MOST_LOST):
        raise SystemExit("The new pair is worse than the one in place, so it was not shipped.")
    ship(work, provenance)


def changed_topics(before: list[Topic], now: list[Topic]) -> set[str]:
    """Ids of topics whose wordings or answers are not those of `before`."""
    known = {topic.id: topic for topic in before}
    return {topic.id for topic in now if known.get(topic.id) != topic}


def go_on_with_target(
    topics: list[Topic],
    changed: set[str],
    encoder: Encoder,
    work: Path,
    options: argparse.Namespace,
    log: Callable[[str], None],
) -> tuple[Llama, dict[str, float]]:
    """The shipped target after more training, at its best on held-out wordings, with its last losses and figures."""
    chooser = Chooser(read_gguf(evaluate.TARGET, DROPOUT), sum(len(topic.turns) for topic in topics))
    head, best = work / "head.pt", work / "target.best.pt"
    if head.exists():
        chooser.head.load_state_dict(torch.load(head))
    else:
        teach_head(chooser, topics, encoder, options.head_minutes, log)
        torch.save(chooser.head.state_dict(), head)
        log(f"before: {json.dumps(held_out(chooser, topics, encoder))}")
    before = read_gguf(evaluate.TARGET).eval().requires_grad_(False)
    lesson = Lesson(
        options.minutes,
        options.peak,
        whole_rows=options.whole_rows,
        short_rows=options.short_rows,
        before=before,
        changed=frozenset(changed),
        often=options.often,
        now=time.process_time,
    )
    losses = teach(chooser, topics, encoder, work, lesson, best=best, log=log)
    chooser.load_state_dict(torch.load(best))
    move_back(chooser.model, before, options.kept_share)
    losses |= held_out(chooser, topics, encoder)
    log(f"with {options.kept_share:.0%} of the weights before: {json.dumps(losses)}")
    return chooser.model.eval(), losses


def move_back(model: Llama, before: Llama, share: float) -> None:
    """Move the weights part of the way back: that loses less of what was learnt now than it restores of the rest."""
    with torch.no_grad():
        for new, old in zip(model.parameters(), before.parameters(), strict=True):
            new.lerp_(old, share)


def go_on_with_draft(
    samples: list[Sample], work: Path, options: argparse.Namespace, log: Callable[[str], None]
) -> tuple[Llama, float]:
    """The shipped draft after learning from the new target's answers, with its loss."""
    draft = read_gguf(evaluate.DRAFT)
    checkpoint, minutes = work / "draft.checkpoint.pt", options.draft_minutes
    loss = train_draft(samples, draft, checkpoint, minutes, peak=options.draft_peak, now=time.process_time, log=log)
    return draft, loss


def teach_head(
    chooser: Chooser, topics: list[Topic], encoder: Encoder, minutes: float, log: Callable[[str], None]
) -> None:
    """The head that names the answer is not in the GGUF file: learn it again, with all else as it is."""
    rows = Rows(topics, encoder, seed=7)
    chooser.model.requires_grad_(False)
    nn.init.zeros_(chooser.head.weight)
    optimizer = torch.optim.AdamW(chooser.head.parameters(), lr=HEAD_PEAK, betas=(0.9, 0.98))
    clock, loss, steps = Clock(minutes * 60, now=time.process_time), torch.zeros(()), 0
    while clock.share < 1:
        for group in optimizer.param_groups:
            group["lr"] = HEAD_PEAK * max(0.02, 1 - clock.share)
        drawn = [rows.prompt() for _ in range(HEAD_PROMPTS)]
        loss = choice_loss(chooser, [row.tokens for row in drawn], [row.choices[0][1] for row in drawn])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps += 1
    right = held_out_choice(chooser, topics, encoder)
    log(f"head: {steps} steps, loss {loss.item():.3f}, names {right:.3f} of the held-out wordings")
    chooser.model.requires_grad_(True)


def answers_of_target(
    topics: list[Topic],
    changed: set[str],
    encoder: Encoder,
    work: Path,
    options: argparse.Namespace,
    log: Callable[[str], None],
) -> list[Sample]:
    """What the new target says, to questions of changed topics more often; kept in the work folder."""
    path = work / "answers.pickle"
    if not path.exists():
        often = [topic for topic in topics for _ in range(options.often if topic.id in changed else 1)]
        prompts = prompts_of(often, encoder, ROUNDS, seed=8)
        openings = prompts_of(topics, encoder, OPENING_ROUNDS, seed=9)
        log(f"{len(prompts)} answers and {len(openings)} openings for the draft")
        samples = own_answers(work / evaluate.TARGET.name, prompts, openings, options.threads)
        path.write_bytes(pickle.dumps(samples))
    return pickle.loads(path.read_bytes())


def facts_of(folder: Path, models: dict[str, Llama]) -> dict:
    paths = {"target": evaluate.TARGET, "draft": evaluate.DRAFT}
    return {role: file_facts(folder / path.name) | shape_facts(models[role]) for role, path in paths.items()}


def what_was_done(options: argparse.Namespace, changed: set[str]) -> dict:
    return {
        "from": {"target": file_facts(evaluate.TARGET), "draft": file_facts(evaluate.DRAFT)},
        "changed_topics": sorted(changed),
        "cpu_minutes": {
            "head": options.head_minutes,
            "target": options.minutes,
            "draft": options.draft_minutes,
        },
        "peak_rates": {"target": options.peak, "draft": options.draft_peak},
        "rows_a_step": {"whole": options.whole_rows, "short": options.short_rows},
        "changed_drawn": options.often,
        "held_to_before": HELD_SHARE,
        "share_of_old_weights": options.kept_share,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="folder with the corpus that the pair has learnt")
    parser.add_argument("--minutes", type=float, default=18, help="CPU time for the target (default 18)")
    parser.add_argument("--head-minutes", type=float, default=1.5, help="before it, for the head that names the answer")
    parser.add_argument("--draft-minutes", type=float, default=10)
    parser.add_argument("--peak", type=float, default=3e-4, help="highest learning rate of the target (default 3e-4)")
    parser.add_argument("--draft-peak", type=float, default=1.5e-3)
    parser.add_argument("--whole-rows", type=int, default=5, help="whole answers a step (default 5)")
    parser.add_argument("--short-rows", type=int, default=40, help="beginnings of answers a step (default 40)")
    parser.add_argument("--often", type=int, default=4, help="how often changed topics are drawn (default 4)")
    parser.add_argument("--kept-share", type=float, default=0.1, help="of the old weights in the target (default 0.1)")
    parser.add_argument("--questions", type=int, default=590, help="held-out questions to measure with (default 590)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", type=Path, default=WORK, help="folder for checkpoints and logs")
    parser.add_argument("--ship", action="store_true", help="only put the pair of the finished run in place")
    options = parser.parse_args()
    if options.ship:
        put_in_place(work_folder(options))
    else:
        finetune(options)


if __name__ == "__main__":
    main()
