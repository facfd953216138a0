"""What the engine's events mean for the window: the signal each becomes, and the state its request leaves behind."""

from __future__ import annotations

from app.protocol.messages import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    LoadFailed,
    LoadProgressed,
    PairLoaded,
    PlainMeasured,
    PromptProgressed,
    TokensScored,
)
from app.ui.engine.interface import EngineState

ENDS: dict[type, EngineState] = {
    PairLoaded: EngineState.READY,
    LoadFailed: EngineState.EMPTY,
    GenerationFinished: EngineState.READY,
    GenerationFailed: EngineState.READY,
    PlainMeasured: EngineState.READY,
    TokensScored: EngineState.READY,
}
"""What a request's last event leaves the engine in."""

SIGNALS: dict[type, str] = {
    LoadProgressed: "load_progressed",
    PairLoaded: "pair_loaded",
    LoadFailed: "load_failed",
    GenerationStarted: "generation_started",
    PromptProgressed: "prompt_progressed",
    GenerationFinished: "generation_finished",
    GenerationFailed: "generation_failed",
    PlainMeasured: "plain_measured",
    TokensScored: "tokens_scored",
}
"""The signal of `app.ui.engine.interface.Engine` that carries an event."""
