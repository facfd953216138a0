"""Conversations with tool calls, by SmolLM2: what holds, and what drafting brings in calls and behind results.

    python -m benchmarks.tool_calls [COUNT] [--first N]

COUNT conversations (default 20) of one to five calls, each once without a draft and once with n-grams and grammar, in
turns. The ratio of medians only means something on a quiet machine.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from app.engine.host.engine import Engine
from app.protocol.commands import Load
from app.protocol.options import LoadSettings, Sampling
from benchmarks.real_figures import ratio_of_medians, show_progress
from tests.support.generation import Answer
from tests.support.real_models import SMOLLM2, found
from tests.support.tool_conversations import Conversation, converse

PLAIN: dict[str, Any] = {"drafter": "none", "draft_length": 0}
AUTO: dict[str, Any] = {"drafter": "auto", "draft_length": "auto"}
WARM = Sampling(temperature=0.8)


def passes(turns: Sequence[Answer]) -> str:
    """Tokens behind the first one, by pass."""
    count = sum(turn.finished.figures.draft.verify_passes for turn in turns)
    return f"{sum(len(turn.token_ids) - 1 for turn in turns) / count:.2f}" if count else "?"


def ratio(ours: Sequence[Answer], theirs: Sequence[Answer]) -> str:
    """Of the decode speeds."""
    speeds = [
        (one.finished.figures.decode_tokens_per_second, other.finished.figures.decode_tokens_per_second)
        for one, other in zip(ours, theirs, strict=True)
    ]
    known = [(one, other) for one, other in speeds if one and other]
    return str(ratio_of_medians([one for one, _ in known], [other for _, other in known]))


def by_drafter(turns: Sequence[Answer]) -> str:
    """How many tokens of each were accepted."""
    counted = Counter[str]()
    for turn in turns:
        counted.update({one.name: one.accepted for one in turn.finished.figures.draft.drafters})
    return ", ".join(f"{name} {count}" for name, count in counted.most_common())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=20)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(arguments)
    path = found(SMOLLM2)
    if path is None:
        raise SystemExit("SmolLM2 isn't here: scripts/real-models downloads it.")
    engine = Engine()
    engine.load(Load(request=1, target=str(path), settings=LoadSettings(context_length=8192)), lambda _: None)
    plain, drafted = list[Conversation](), list[Conversation]()
    for number in range(options.first, options.first + options.count):
        order = ((plain, PLAIN), (drafted, AUTO))
        for one, drafting in order if number % 2 else reversed(order):
            one.append(converse(engine, number, last_tokens=64, sampling=WARM, **drafting))
        show_progress(f"{number + 1 - options.first} of {options.count}")
    engine.unload()
    print(f"{options.count} conversations, {sum(len(one.calls) for one in plain)} calls")
    print("not as they have to be:", [problem for one in plain + drafted for problem in one.problems] or "none")
    differ = [place for place, pair in enumerate(zip(plain, drafted, strict=True)) if pair[0].tokens != pair[1].tokens]
    print("other tokens with a draft:", differ or "none")
    parts = {"calls": slice(0, -1), "the answer behind the results": slice(-1, None)}
    for name, part in parts.items():
        ours, theirs = ([turn for one in several for turn in one.turns[part]] for several in (drafted, plain))
        tokens = sum(len(turn.token_ids) for turn in ours)
        accepted = sum(turn.finished.figures.draft.accepted for turn in ours)
        print(
            f"{name}: {tokens} tokens, {accepted / tokens:.0%} accepted ({by_drafter(ours)}), {passes(ours)} per pass"
        )
        print(f"  decode speed ÷ without a draft: {ratio(ours, theirs)}")


if __name__ == "__main__":
    main()
