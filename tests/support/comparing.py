"""One comparison on an engine in this process."""

from __future__ import annotations

from app.compare.prompts import Prompt
from app.compare.results import Comparison
from app.compare.steps import Engine, Step, Steps, carry_out, task_of
from app.protocol.commands import Generate


def compare_one(engine: Engine, prompt: Prompt, command: Generate, seed: int) -> Comparison:
    """Plain, then as ``command`` says."""
    steps = Steps([task_of(prompt, command, seed)], [Step(0, None), Step(0, command.drafter)])
    (found,) = carry_out(engine, steps)
    assert isinstance(found, Comparison)
    return found
