"""When a draft model's draft ends, and how many of its tokens are tested.

Drafting goes on, and tokens are tested, while the best continuation gains more tokens than its seconds are worth at the
rate of the whole (renewal reward; Dinkelbach, Management Science 13, 1967).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stopping:
    """What the end of one draft is decided from. Chances are for each drafted token to be accepted if those before it
    are.
    """

    chance: Callable[[float, int], float]
    """The chance of acceptance of a token with this confidence at this position."""
    expected: Sequence[float]
    """The expected tokens of a round whose draft has 0, 1, … tokens, before their confidences are known."""
    survivals: Sequence[float]
    """The chance that all of 0, 1, … tokens are accepted, before their confidences are known."""
    seconds: Sequence[float]
    """Seconds of a round that tests 0, 1, … tokens, without drafting them."""
    draft: float
    """Seconds per drafted token."""
    rate: float
    """Tokens per second that a round has to reach."""

    def goes_on(self, chances: Sequence[float]) -> bool:
        """Whether one more token pays off, after tokens of these ``chances``, which are already paid for."""
        rate, seconds, expected, done = self.rate, self.seconds, self.expected, len(chances)
        survival = total = before = 1.0
        for chance in chances:
            survival *= chance
            before, total = total, total + survival
        # To stop here is to test all, to leave the last token to the target, or to process all of them one by one.
        stopped = max(total - rate * seconds[done], before - rate * seconds[done - 1], done * (1.0 - rate * seconds[0]))
        scale = survival / self.survivals[done]
        base, cost = total - scale * expected[done], rate * self.draft
        return any(
            base + scale * expected[more] - rate * seconds[more] - cost * (more - done) > stopped
            for more in range(done + 1, len(expected))
        )

    def count_worth_testing(self, confidences: Sequence[float]) -> int:
        """The number of drafted tokens that is best to test.

        The tokens left out after the tested ones and the target's own are still to come, including the doubtful token
        that ended the draft: they have to be drafted again and processed in the next rounds, at worst by as many plain
        passes.
        """
        chances = [self.chance(confidence, i) for i, confidence in enumerate(confidences)]
        count = len(chances)
        prices = [self.rate * taken for taken in self.seconds[: count + 1]]
        best, _ = _best(chances, prices, 0, ())
        if best >= count - 1:
            return best  # nothing is still to come
        ahead = [0.0] * count
        for start in range(count - 1, 0, -1):
            _, value = _best(chances, prices, start, ahead)
            ahead[start] = min(value - self.rate * self.draft * (count - start), 0.0)
        return _best(chances, prices, 0, ahead)[0]


def _best(chances: Sequence[float], prices: Sequence[float], start: int, ahead: Sequence[float]) -> tuple[int, float]:
    """How many tokens from ``start`` on to test, and what that is worth, in tokens.

    ``prices``: of the seconds of a round. ``ahead``: what it is worth, against knowing nothing, that the tokens from a
    position on are those to come; the round lands there if the target's own token is the drafted one, too.
    """
    survival = total = 1.0
    best, best_value = 0, float("-inf")
    for length, position in enumerate(range(start, len(chances) + 1)):
        value = total - prices[length]
        chance = chances[position] if position < len(chances) else 0.0
        survival *= chance
        if position + 1 < len(ahead):
            value += survival * ahead[position + 1]
        if value >= best_value:
            best, best_value = length, value
        total += survival
    return best, best_value
