"""How many of the drafted tokens to test, in renewal-reward terms: tokens gained less what the seconds are worth."""

from __future__ import annotations

from collections.abc import Sequence


def count_worth_testing(chances: Sequence[float], rate: float, seconds: Sequence[float], draft: float) -> int:
    """The number of drafted tokens whose test is worth most.

    ``chances``: of each drafted token, that it is accepted if those before it are. ``rate``: tokens per second a round
    has to earn. ``seconds``: of a round that tests 0, 1, … tokens. ``draft``: seconds of a drafted token.

    What is left out behind the tested tokens and the target's own stays ahead, the doubtful token that ended the draft
    among it: it has to be drafted again and dealt with in the next rounds, at worst by as many plain passes.
    """
    count = len(chances)
    prices = [rate * taken for taken in seconds[: count + 1]]
    best, _ = _best(chances, prices, 0, ())
    if best >= count - 1:
        return best  # nothing is left ahead
    ahead = [0.0] * count
    for start in range(count - 1, 0, -1):
        _, value = _best(chances, prices, start, ahead)
        ahead[start] = min(value - rate * draft * (count - start), 0.0)
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
