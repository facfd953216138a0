"""Training rows: short ones that teach which answer a question asks for, and whole answers."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from guide.augment import vary
from guide.corpus import Topic, Turn
from guide.tokenizer import END, Encoder

SYSTEM_PROMPTS = [
    "You are a helpful assistant.",
    "You are the Slipstream Guide.",
    "Answer briefly.",
    "You are a friendly guide for beginners. Use plain words.",
    "Be concise and correct.",
    "You are an assistant inside a desktop app. Answer questions about the app.",
]
OPENING_TOKENS = 12
OPENING_WEIGHT = 2.0


@dataclass
class Row:
    """One conversation: its tokens, the weight of each as something to predict, and where which answer is chosen."""

    tokens: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    choices: list[tuple[int, int]] = field(default_factory=list)
    known: bool = False
    """Whether an earlier model has learnt these answers as they are."""

    def add(self, tokens: list[int], weights: list[float] | None = None) -> None:
        self.tokens += tokens
        self.weights += weights or [0.0] * len(tokens)


@dataclass
class Batch:
    """Rows padded to one length; `rows`, `columns`: positions whose next token is learned, with `targets`, `weights`.

    `choice_places` are those of them, by index, at which an answer is chosen, `choices` the right ones; `known` tells
    which of them stand in a row that an earlier model knows.
    """

    tokens: Tensor
    rows: Tensor
    columns: Tensor
    targets: Tensor
    weights: Tensor
    choice_places: Tensor
    choices: Tensor
    known: Tensor


def batch_of(rows: list[Row]) -> Batch:
    length = max(len(row.tokens) for row in rows)
    tokens = torch.tensor([row.tokens + [END] * (length - len(row.tokens)) for row in rows])
    learned = [
        (number, column - 1, row.tokens[column], weight)
        for number, row in enumerate(rows)
        for column, weight in enumerate(row.weights)
        if weight
    ]
    places = {(number, column): place for place, (number, column, _, _) in enumerate(learned)}
    chosen = [(places[number, column], choice) for number, row in enumerate(rows) for column, choice in row.choices]
    where = torch.tensor([item[:3] for item in learned]).T
    weights = torch.tensor([item[3] for item in learned])
    known = torch.tensor([row.known for row in rows])[where[0]]
    return Batch(tokens, *where, weights, *torch.tensor(chosen).T, known)


class Rows:
    """Makes rows from the training wordings, every time in other words."""

    def __init__(
        self,
        topics: list[Topic],
        encoder: Encoder,
        seed: int,
        *,
        changed: Collection[str] = frozenset(),
        often: int = 1,
    ) -> None:
        """`changed`: ids of topics that an earlier model has not learnt as they are, drawn `often` times as often."""
        self._encoder = encoder
        self._rng = random.Random(seed)
        self._topics = topics
        self._changed = changed
        numbered = {turn: number for number, turn in enumerate(turn for topic in topics for turn in topic.turns)}
        self.choices = len(numbered)
        self._number = numbered
        self._answers = {turn: encoder.answer(turn.answer) for turn in numbered}
        self._deck: list[tuple[Topic, str]] = []
        self._often = often
        self._variety = 1.0

    def settle(self) -> None:
        """For the end, when questions should look as they are asked: vary them less, draw all topics alike."""
        self._variety, self._often, self._deck = 0.5, 1, []

    def prompt(self) -> Row:
        """A question alone, with what came before it in a dialogue."""
        topic, wording = self._next()
        row = self._opened(topic)
        for turn in topic.turns[:-1]:
            self._add_turn(row, turn, self._wording(turn), OPENING_TOKENS)
        self._add_turn(row, topic.turns[-1], wording, 0)
        row.choices = row.choices[-1:]
        return row

    def short(self) -> Row:
        """One question and the first tokens of its answer."""
        topic, wording = self._next()
        row = self._opened(topic)
        for turn in topic.turns[:-1]:
            self._add_turn(row, turn, self._wording(turn), OPENING_TOKENS)
        last = topic.turns[-1]
        self._add_turn(row, last, wording, OPENING_TOKENS)
        return row

    def whole(self) -> Row:
        """One topic or dialogue with whole answers."""
        topic, wording = self._next()
        row = self._opened(topic)
        for turn in topic.turns:
            self._add_turn(row, turn, wording if turn is topic.turns[-1] else self._wording(turn))
        return row

    def _next(self) -> tuple[Topic, str]:
        """The next topic with a wording of its last turn, each wording once in a round."""
        if not self._deck:
            self._deck = [
                (topic, wording)
                for topic in self._topics
                for wording in topic.turns[-1].train * (self._often if topic.id in self._changed else 1)
            ]
            self._rng.shuffle(self._deck)
        return self._deck.pop()

    def _wording(self, turn: Turn) -> str:
        return self._rng.choice(turn.train)

    def _opened(self, topic: Topic) -> Row:
        row = Row(known=topic.id not in self._changed)
        if self._rng.random() < 0.1:
            row.add(self._encoder.system(self._rng.choice(SYSTEM_PROMPTS)))
        return row

    def _add_turn(self, row: Row, turn: Turn, wording: str, limit: int | None = None) -> None:
        rng = self._rng
        varied = vary(wording, rng) if rng.random() < 0.85 * self._variety else wording
        row.add(self._encoder.question(varied, varied=rng.random() < 0.5 * self._variety))
        row.choices.append((len(row.tokens) - 1, self._number[turn]))
        answer = self._answers[turn][:limit]
        opening = min(OPENING_TOKENS, len(answer))
        row.add(answer, [OPENING_WEIGHT] * opening + [1.0] * (len(answer) - opening))


def packed(rows: list[Row], tokens: int) -> Iterator[Batch]:
    """Batches of rows of like length, so that little is padding, each of at most about `tokens` tokens."""
    group: list[Row] = []
    for row in sorted(rows, key=lambda row: len(row.tokens)):
        length = len(row.tokens)
        if group and (length * (len(group) + 1) > tokens or length > 2 * len(group[0].tokens) + 4):
            yield batch_of(group)
            group = []
        group.append(row)
    if group:
        yield batch_of(group)
