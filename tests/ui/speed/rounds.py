"""Rounds for the tests of the Speed panel."""

from __future__ import annotations

from app.protocol.events import Pause, Round


def steady(count: int, *, seconds: float, accepted: int, tested: int = 4) -> list[Round]:
    """``count`` rounds of ``seconds`` each; the first, after half a second, is the token of prompt processing."""
    start = 0.5
    rounds = [Round(index=0, verify_passes=0, tokens=1, time=start)]
    for index in range(1, count):
        rounds.append(
            Round(
                index=index,
                verify_passes=1,
                tokens=accepted + 1,
                drafted=tested,
                tested=tested,
                accepted=accepted,
                draft_seconds=seconds * 0.2,
                verify_seconds=seconds * 0.7,
                other_seconds=seconds * 0.1,
                time=start + index * seconds,
            )
        )
    return rounds


def paused_rounds(count: int, pause: Pause) -> list[Round]:
    """Ten plain rounds a second while drafting rests."""
    return [
        Round(index=index, verify_passes=1, tokens=1, paused=pause, verify_seconds=0.08, time=0.1 * index)
        for index in range(1, count + 1)
    ]
