"""A report as text to keep: Markdown for people, CSV for tables, JSON with everything."""

from __future__ import annotations

from app.compare.results import Report


def markdown(report: Report) -> str:
    """Readable on its own."""
    raise NotImplementedError


def csv(report: Report) -> str:
    """One line a comparison."""
    raise NotImplementedError


def json(report: Report) -> str:
    """Everything, with the texts."""
    raise NotImplementedError
