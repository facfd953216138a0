"""Drafters in training compute what llama.cpp will compute of them. Skipped where PyTorch is missing."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from training.data import Answer, batch_of  # noqa: E402
from training.distill import distilled  # noqa: E402
from training.eagle3 import Eagle3  # noqa: E402
from training.learn import Clock, Lesson  # noqa: E402
from training.measure import walked  # noqa: E402
from training.target import Sizes  # noqa: E402

SIZES = Sizes(30, 64, 96, 4, 2, 1000, 1e5, 1e-5, 8192)


def drafted(head: Any, tokens: Any, states: Any, place: int, steps: int, padding: int) -> Any:
    """The head's output after `steps` more steps behind `place`, cell by cell as an engine does it."""
    mixed, cells = head.mixed(states), []

    def cell(token: Any, state: Any, position: int) -> tuple[Any, Any, Any]:
        given = torch.cat((head.token_norm(token), head.state_norm(state)), -1)[None]
        at = torch.tensor([position])
        return head.rotate(head._heads(head.q(given)), at), head.rotate(head._heads(head.k(given)), at), head.v(given)

    cells = [cell(tokens[:, index], mixed[:, index], index) for index in range(padding, place + 1)]
    state = mixed[:, place]
    for step in range(steps + 1):
        if step:
            cells.append(cell(tokens[:, place + step], state, place + step))
        keys = torch.cat([key for _, key, _ in cells], 2).repeat_interleave(2, 1)
        values = torch.cat([head._heads(value) for _, _, value in cells], 2).repeat_interleave(2, 1)
        weights = torch.softmax(cells[-1][0] @ keys.transpose(-1, -2) / math.sqrt(SIZES.head_size), -1)
        state = state + head.o((weights @ values).transpose(1, 2).flatten(2))[:, 0]
        state = state + head.inner(head.inner_norm(state))
    return state


def test_unrolled_steps_are_those_of_a_draft() -> None:
    torch.manual_seed(1)
    head = Eagle3(SIZES, np.arange(50))
    tokens, states = torch.randn(1, 12, SIZES.width), torch.randn(1, 12, 3 * SIZES.width)
    outputs = head.unrolled(tokens, states, torch.tensor([2]), 4, 3)
    for place in (4, 6, 8):
        for step in range(3):
            expected = drafted(head, tokens, states, place, step, 2)
            assert torch.allclose(outputs[step][:, place + step - 4], expected, atol=1e-5)


def test_gradients_of_the_loss_are_those_of_cross_entropies() -> None:
    torch.manual_seed(1)
    weight = (torch.randn(300, 64) * 0.3).requires_grad_()
    own, last, weights = (torch.randn(300, 64) * 0.3).bfloat16(), torch.randn(50, 64), torch.rand(2, 50)
    hidden = [torch.randn(50, 64).requires_grad_() for _ in range(2)]
    distilled(weight, own, last, weights, hidden)[0].backward()
    found = [one.grad.clone() for one in (weight, *hidden)]
    for one in (weight, *hidden):
        one.grad = None
    wanted = torch.softmax((last.bfloat16() @ own.t()).float(), -1)
    for step, state in enumerate(hidden):
        losses = -(wanted * torch.log_softmax(state @ weight.t(), -1)).sum(-1)
        (losses * weights[step]).sum().backward()
    for got, one in zip(found, (weight, *hidden), strict=True):
        assert (got - one.grad).norm() / one.grad.norm() < 0.02


def test_a_batch_lines_answers_up() -> None:
    answers = []
    for length, prompt in ((9, 4), (7, 5)):
        states = np.arange(length)[:, None, None] * np.ones((1, 4, 8))
        answers.append(Answer(np.arange(length, dtype=np.int32) + 10, prompt, states.astype(np.float16), 0.0, "list"))
    batch = batch_of(answers)
    assert batch.first == 4
    assert batch.padding.tolist() == [1, 0]
    assert batch.following[0].tolist() == [0, 11, 12, 13, 14, 15, 16, 17]
    assert batch.truth[0].tolist() == [15, 16, 17, 18]
    assert batch.last[0, :, 0].tolist() == [4, 5, 6, 7]
    assert batch.states[1, :5, 0].tolist() == [0, 1, 2, 3, 4]
    assert batch.valid.sum(1).tolist() == [4, 1]


def test_drafts_begin_where_the_last_pass_ended() -> None:
    right = torch.tensor([[1, 0, 0, 1, 1, 1], [0, 0, 1, 0, 1, 1], [0, 0, 1, 1, 1, 0]], dtype=torch.bool)
    assert walked(right, 3) == (3, 9, 3)


def test_a_lesson_of_no_minutes_is_over(tmp_path: Path) -> None:
    assert Clock(Lesson(0, 1e-3, tmp_path / "none"), 0).share == 1
