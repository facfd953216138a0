"""A report for a terminal, at most 80 columns wide: a table, a chart, and where texts differ."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from app.compare import wording
from app.compare.results import Curve, Report, Summary, summarize
from app.compare.wording import number, percent, times
from app.models.text import printable

_WIDTH = 80
_BAR = 40
_DIFFERENCES = 5
"""So many are told; files have them all."""
_HEADS = ("same", "kept", "a pass", "plain", "drafted", "speed-up", "half between")
_WIDTHS = (9, 7, 8, 9, 9, 10, 14)


def readable(report: Report) -> str:
    """The whole report, without what it was made with."""
    summary = summarize(report.comparisons)
    blocks = [_head(report), _table(summary), _chart(summary)]
    if report.curve:
        blocks.append(_curve(report.curve))
    blocks += [_differences(report), _skipped(report)]
    return "\n\n".join(block for block in blocks if block)


def _head(report: Report) -> str:
    setup = report.setup
    pair = setup.target.name + (f" with the draft {setup.draft.name}" if setup.draft else "")
    settings = f"{setup.threads} threads, {wording.sampling(setup.sampling)}, draft length {setup.draft_length}"
    return "\n".join(textwrap.wrap(printable(pair, _WIDTH), _WIDTH) + textwrap.wrap(settings, _WIDTH))


def _table(summary: Summary) -> str:
    lines = [_line("tok/s", _HEADS)]
    lines += [_line(row.kind, wording.cells(row)) for row in summary.rows]
    if len(summary.rows) != 1:
        lines.append(_line("all", wording.cells(summary.total)))
    return "\n".join(lines)


def _line(name: str, cells: Sequence[str]) -> str:
    return _kind(name) + "".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))


def _kind(name: str) -> str:
    return printable(name, 12).ljust(14)


def _chart(summary: Summary) -> str:
    """A bar for the speed-up of each kind, with a line where plain is."""
    timed = [(row.kind, row.speed_up, row.acceptance_rate) for row in summary.rows if row.speed_up is not None]
    if not timed:
        return ""
    scale = _BAR / max(1.25, *(speed_up for _, speed_up, _ in timed))
    plain = round(scale)
    lines = [f"{'speed-up':14}{'plain'.rjust(plain - 1)} ↓"]
    for kind, speed_up, acceptance in timed:
        accepted = f", {percent(acceptance)} kept" if acceptance is not None else ""
        lines.append(f"{_kind(kind)}{_bar(round(speed_up * scale), plain)} {times(speed_up)}{accepted}")
    return "\n".join(lines)


def _bar(length: int, plain: int) -> str:
    """``length`` of `_BAR` cells filled, and a line behind the first ``plain`` of them."""
    cells = "█" * length + " " * (_BAR - length)
    return f"{cells[:plain]}│{cells[plain:]}"


def _curve(curve: Curve) -> str:
    """Speeds by draft length, and ``auto`` where its average place is."""
    points = [(float(n), str(n), speed) for n, speed in zip(curve.lengths, curve.speeds, strict=True)]
    if curve.auto is not None and curve.auto_length is not None:
        points.append((curve.auto_length, f"auto, {curve.auto_length:.1f} a pass", curve.auto))
    known = [(name, speed) for _, name, speed in sorted(points) if speed is not None]
    if not known:
        return ""
    scale = _BAR / max(speed for _, speed in known)
    lines = [f"{'draft length':20}{'tok/s':>8}"]
    lines += [f"{name:20}{number(speed):>8}  {'█' * round(speed * scale)}" for name, speed in known]
    return "\n".join(lines)


def _differences(report: Report) -> str:
    differing = [(one, one.difference) for one in report.comparisons if one.difference is not None]
    if not differing:
        return ""
    lines = [f"Different texts: {len(differing)} of {len(report.comparisons)}."]
    for comparison, found in differing[:_DIFFERENCES]:
        name = f"{comparison.prompt.kind}, {comparison.prompt.title!r}, seed {comparison.seed}"
        lines += _item(f"{name}: {wording.difference(found, report.setup)}.")
    if len(differing) > _DIFFERENCES:
        lines.append(f"  and {len(differing) - _DIFFERENCES} more; --output FILE keeps them all.")
    return "\n".join(lines)


def _skipped(report: Report) -> str:
    if not report.skipped:
        return ""
    lines = [f"Not answered: {len(report.skipped)}."]
    for skipped in report.skipped[:_DIFFERENCES]:
        lines += _item(f"{skipped.prompt.kind}, {skipped.prompt.title!r}: {skipped.reason}")
    return "\n".join(lines)


def _item(text: str) -> list[str]:
    return textwrap.wrap(printable(text, 2000), _WIDTH, initial_indent="  ", subsequent_indent="    ")
