"""What is asked of an engine in a comparison, without an engine."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from app.compare.prompts import Prompt
from app.compare.results import Comparison, Skipped
from app.compare.steps import Steps, Task, task_of
from app.protocol.commands import Generate, Message, ScoreTokens
from app.protocol.events import Figures, GenerationFinished, Piece, Round, TokensScored


def task(text: str, seed: int = 0) -> Task:
    prompt = Prompt(kind="own", messages=[Message(role="user", content=text)])
    return task_of(prompt, Generate(request=0, messages=[], draft_length=4), seed)


def answer(steps: Steps, *ids: int) -> None:
    pieces = [Piece(text=f" {token}", id=token) for token in ids]
    steps.add(Round(index=0, verify_passes=0, pieces=pieces))
    steps.finish(GenerationFinished(request=0, finish_reason="end", figures=Figures()))


def told(steps: Steps, refused: str = "") -> list[str]:
    """What is asked for and what comes of it; prompts named ``refused`` are."""
    heard = []
    while (found := steps.next()) is not None:
        match found:
            case Generate():
                assert steps.step is not None
                text, counts = found.messages[-1].content, steps.step.counts
                heard.append(f"{'' if counts else 'warm up '}{text} {found.draft_length} seed {found.seed}")
                if text == refused:
                    steps.fail("too long")
                else:
                    answer(steps, 1, 2)
            case Skipped():
                heard.append(f"{found.prompt.title} skipped: {found.reason}")
            case Comparison():
                heard.append(f"{found.prompt.title} compared")
    assert steps.is_done()
    return heard


def test_both_runs_have_the_same_date() -> None:
    asked = task("a")
    first = asked.command.messages[0]
    assert first.sent_at is not None and first.sent_at > 1_700_000_000
    began = msgspec.structs.replace(first, sent_at=5.0)
    of_a_chat = task_of(Prompt(kind="chat", messages=[began, first]), asked.command, 0)
    assert of_a_chat.command.messages == [began, first]
    steps, found = Steps.of_one(asked), []
    while (command := steps.next()) is not None:
        if isinstance(command, Comparison):
            continue
        assert not isinstance(command, Skipped)
        found.append(command.messages)
        if isinstance(command, ScoreTokens):
            could = TokensScored(request=0, logits=[1.0, 2.0], scores=[1.0, 2.0], could_win=[True, True])
            steps.score(could)
        else:
            answer(steps, len(found))
    assert found == [[first]] * 4


def test_which_run_is_first_alternates_over_prompts_and_seeds() -> None:
    prompts = [task("a"), task("b")]
    tasks = [*prompts, *(task_of(one.prompt, one.command, 1) for one in prompts)]
    assert told(Steps.of_set(tasks)) == [
        *("warm up a 0 seed 0", "warm up a 4 seed 0"),
        *("a 0 seed 0", "a 4 seed 0", "a compared", "b 4 seed 0", "b 0 seed 0", "b compared"),
        *("a 4 seed 1", "a 0 seed 1", "a compared", "b 0 seed 1", "b 4 seed 1", "b compared"),
    ]


def differing(asked: Task) -> Steps:
    steps, command = Steps.of_one(asked), asked.command
    for ids in [(1,), (1, 2), (1, 3)]:
        found = steps.next()
        assert isinstance(found, Generate)
        assert (found.private, found.overflow) == (command.private, command.overflow)
        answer(steps, *ids)
    scores = steps.next()
    assert isinstance(scores, ScoreTokens) and (scores.answer, scores.candidates) == ([1], [2, 3])
    assert (scores.private, scores.overflow) == (command.private, command.overflow)
    return steps


def test_a_difference_is_looked_at() -> None:
    asked = task("a")  # in a private chat, and all that is asked about it is asked so too
    steps = differing(
        replace(asked, command=msgspec.structs.replace(asked.command, private=True, overflow="keep_ends"))
    )
    steps.score(TokensScored(request=0, logits=[2.0, 1.0], scores=[2.0, 1.5], could_win=[True, True], rounding=0.1))
    found = steps.next()
    assert isinstance(found, Comparison) and found.difference is not None
    assert (found.difference.near_tie, found.difference.score_gap) == (True, 0.5)
    assert (found.plain.token_ids, found.drafted.token_ids) == ([1, 2], [1, 3])


def drafted_by(asked: Task, ids: dict[str, tuple[int, ...]]) -> tuple[list[str], list[Comparison]]:
    """With which drafter each run was made, and what came of it; ``ids``: the answers."""
    steps, order, found = Steps.of_set([asked], drafters=["ngram", "model"]), list[str](), list[Comparison]()
    while (command := steps.next()) is not None:
        if isinstance(command, Generate):
            order.append(command.drafter if command.draft_length else "plain")
            answer(steps, *ids.get(order[-1], (1, 2)))
        elif isinstance(command, ScoreTokens):
            steps.score(TokensScored(request=0, logits=[1.0, 2.0], scores=[1.0, 2.0], could_win=[True, True]))
        else:
            assert isinstance(command, Comparison)
            found.append(command)
    return order, found


def test_each_drafter_is_compared_with_the_same_run_without_a_draft() -> None:
    order, found = drafted_by(task("a"), {})
    assert order == ["plain", "ngram", "model"] * 2, "after the warm-up"
    assert [(one.drafter, one.command.drafter, one.same) for one in found] == [
        ("ngram", "ngram", True),
        ("model", "model", True),
    ]
    assert found[0].plain is found[1].plain


def test_several_differences_of_a_prompt_are_looked_at() -> None:
    _, found = drafted_by(task("a"), {"ngram": (1, 3), "model": (4, 2)})
    assert [(one.drafter, one.difference and one.difference.token) for one in found] == [("ngram", 1), ("model", 0)]
    assert all(one.difference and one.difference.near_tie for one in found)


def test_each_run_is_first_in_turn() -> None:
    tasks = [task("a"), task("b"), task("c")]
    steps, heard = Steps.of_set(tasks, drafters=["ngram", "model"]), ""
    while (found := steps.next()) is not None:
        if isinstance(found, Generate):
            assert steps.step is not None
            heard += (found.drafter[0] if found.draft_length else "p") if steps.step.counts else ""
            answer(steps, 1)
    assert heard == "pnm nmp mpn".replace(" ", "")


def test_a_prompt_that_is_refused_is_left_out_with_all_drafters() -> None:
    asked = [task("a"), task("b")]
    steps, heard = Steps.of_set(asked, drafters=["ngram", "model"]), []
    while (found := steps.next()) is not None:
        if isinstance(found, Generate) and found.messages[-1].content == "a":
            steps.fail("too long")
        elif isinstance(found, Generate):
            answer(steps, 1)
        else:
            heard.append(found)
    assert [type(one) for one in heard] == [Skipped, Comparison, Comparison]


def test_only_rounds_that_draft_count_as_the_time_of_drafts() -> None:
    steps = Steps.of_set([task("a")])
    for _ in range(4):
        steps.next()
        for seconds, drafted in [(0.5, 0), (2.0, 4), (1.0, 1)]:
            steps.add(Round(index=0, verify_passes=1, drafted=drafted, draft_seconds=seconds))
        run = steps.finish(GenerationFinished(request=0, finish_reason="end", figures=Figures()))
        assert run.drafting_seconds == 3.0
