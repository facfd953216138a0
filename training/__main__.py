"""`python -m training answers|train|vocabulary`: each step of training a drafter (README.md)."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from pathlib import Path


def _say(line: str) -> None:
    print(line, flush=True)


def _layers(text: str) -> tuple[int, int, int]:
    low, middle, high = (int(layer) for layer in text.split(","))
    return low, middle, high


def _time(text: str) -> float:
    """Today's hour:minute."""
    hour, minute = text.split(":")
    return datetime.now().replace(hour=int(hour), minute=int(minute), second=0).timestamp()


def _answers(options: argparse.Namespace) -> None:
    from training.answers import Generator, Plan
    from training.prompts import forbidden

    lines = options.without.read_text().splitlines() if options.without else []
    plan = Plan(
        options.model,
        options.folder,
        options.seed,
        options.layers,
        forbidden([turn for line in lines for turn in json.loads(line)["turns"]]),
        options.held_out,
        options.parallel,
    )
    Generator(plan, _say).run(options.minutes * 60, options.tokens)


def _train(options: argparse.Namespace) -> None:
    import torch

    from training import measure
    from training.data import batches
    from training.kinds import KINDS, Setting, move_vocabulary
    from training.learn import Lesson, learn
    from training.target import TargetFile

    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    setting = Setting(
        TargetFile(options.model),
        options.folder,
        options.out,
        options.name or options.kind,
        options.vocabulary,
        options.layers,
        options.steps,
        options.dropout,
    )
    if options.new_vocabulary:
        move_vocabulary(setting)
    kind = KINDS[options.kind](setting)
    lesson = Lesson(options.minutes, options.rate, setting.checkpoint, until=options.until)
    learn(kind.lesson, batches(options.folder, options.seed, options.batch), lesson, _say)
    kind.write()
    if options.held:
        _say(json.dumps(measure.report(kind.right(measure.held_out(options.held)))))


def _add_answers(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_answers)
    parser.add_argument("model", type=Path, help="the target as GGUF; a copy in BF16 is much quicker")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--parallel", type=int, default=128)
    parser.add_argument("--held-out", action="store_true", help="prompts about topics that are never trained on")
    parser.add_argument("--without", type=Path, help="JSON lines with `turns` that prompts must not overlap")


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_train)
    parser.add_argument("kind", choices=("eagle3", "draft", "medusa"))
    parser.add_argument("model", type=Path, help="the target as GGUF")
    parser.add_argument("folder", type=Path, help="of the answers")
    parser.add_argument("out", type=Path)
    parser.add_argument("--name")
    parser.add_argument("--held", type=Path, help="folder of held-out answers, to measure with")
    parser.add_argument("--until", type=_time, default=0.0, help="hour:minute at which it ends")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--batch", type=int, default=800, help="positions a step")
    parser.add_argument("--steps", type=int, default=3, help="steps of the head that are unrolled")
    parser.add_argument("--dropout", type=float, default=0.1, help="of the head's inputs")
    parser.add_argument("--vocabulary", type=int, default=6144, help="how many tokens a head can say")
    parser.add_argument("--new-vocabulary", action="store_true", help="choose them anew before going on")
    parser.add_argument("--threads", type=int, default=1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training")
    commands = parser.add_subparsers(required=True)
    answers = commands.add_parser("answers", help="generate answers with the hidden states that drafters learn from")
    _add_answers(answers)
    train = commands.add_parser("train", help="train a drafter, or go on; --minutes 0 only writes and measures")
    _add_train(train)
    for command in (answers, train):
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--layers", type=_layers, default=(2, 15, 28), help="layers whose inputs a head takes")
        command.add_argument("--minutes", type=float, default=45)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
