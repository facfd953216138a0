"""How well a linear classifier tells the topics apart, and which topics compete: a quick check of the corpus itself.

Run as `python -m guide.confusions`. What it cannot tell apart, the guide will mix up too.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.svm import LinearSVC

from guide.corpus import CORPUS, load_corpus


def confusions(folder: Path) -> tuple[float, dict[tuple[str, str], list[str]]]:
    """Share of held-out first questions that get the right topic, and the wrong ones by (asked, got)."""
    topics = load_corpus(folder)
    train = [(wording, topic.id) for topic in topics for wording in topic.turns[0].train]
    held_out = [(wording, topic.id) for topic in topics for wording in topic.turns[0].held_out]
    model = make_pipeline(
        make_union(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)[\w+.%/-]+"),
            TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True),
        ),
        LinearSVC(C=1.0),
    )
    model.fit([wording for wording, _ in train], [name for _, name in train])
    wrong: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (wording, name), got in zip(held_out, model.predict([wording for wording, _ in held_out]), strict=True):
        if got != name:
            wrong[name, str(got)].append(wording)
    return 1 - sum(map(len, wrong.values())) / len(held_out), wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    share, wrong = confusions(parser.parse_args().corpus)
    print(f"{share:.1%} of the held-out wordings get the right topic\n")
    both_ways: dict[frozenset[str], list[str]] = defaultdict(list)
    for (asked, got), wordings in wrong.items():
        both_ways[frozenset((asked, got))] += [
            f"    {wording}   [asks {asked}, taken for {got}]" for wording in wordings
        ]
    for pair, lines in sorted(both_ways.items(), key=lambda item: (-len(item[1]), sorted(item[0]))):
        print(" <> ".join(sorted(pair)), f"({len(lines)})")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
