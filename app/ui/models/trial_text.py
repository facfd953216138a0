"""What a trial of a draft or a head on this computer brought, in words."""

from __future__ import annotations

from app.models.trials import Trial
from app.ui.widgets import units


def measured_here(trial: Trial) -> str:
    """``68% accepted · 1.8× faster · Nov 22, 2026``."""
    accepted = "nothing drafted" if trial.acceptance_rate is None else units.accepted(trial.acceptance_rate)
    return f"{accepted} · {units.speed_up(trial.speed_up)} · {units.date(trial.measured_at)}"


def trial_role(trial: Trial | None) -> str:
    """Of the text that says so."""
    return "good" if trial is not None and trial.speed_up > 1 else "quiet"
