"""A report as text: for a terminal, as Markdown, as CSV for spreadsheets, and as JSON with everything."""

from __future__ import annotations

import csv as tables
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence

import msgspec

from app import words
from app.compare import wording
from app.compare.results import Comparison, Curve, ModelFile, Report, Summary, summarize
from app.protocol.frames import without_surrogates
from app.protocol.statistics import exported
from app.words import printable

FORMAT, VERSION = "slipstream-compare", 1
"""The name and version of the JSON format."""
ON_TWO = (
    "The answers without a draft were written on a second server, so hardware, version and settings of the two servers "
    "can be part of every difference."
)
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~&])")
_FORMULA = "=+-@＝＋－＠"
"""A spreadsheet treats a cell with such a first character as a formula."""

_WIDTH = 80
_BAR = 40
_DIFFERENCES = 5
"""The most differences shown on a terminal; files have all of them."""
_HEADS = ("same", "accepted", "per pass", "no draft", "draft", "speed-up", "middle half")
_WIDTHS = (9, 9, 9, 9, 8, 9, 13)

# ---------------------------------------------------------------- for a terminal


def readable(report: Report) -> str:
    """A table, a chart and the differences, at most 80 columns wide, without details of the setup."""
    summary = summarize(report.comparisons)
    blocks = [_head(report), _summary_table(summary), _chart(summary)]
    if report.curve:
        blocks.append(_curve(report.curve))
    blocks += [_differences(report), _skipped(report)]
    return "\n\n".join(block for block in blocks if block)


def _head(report: Report) -> str:
    setup = report.setup
    pair = setup.target.name + (f" with the draft {setup.draft.name}" if setup.draft else "")
    settings = f"{setup.threads} threads, {wording.sampling(setup.sampling)}, draft length {setup.draft_length}"
    if setup.servers:
        pair, settings = f"{pair} on {' and '.join(setup.servers)}", wording.sampling(setup.sampling)
    lines = [printable(pair, _WIDTH), settings, *([ON_TWO] if len(setup.servers) > 1 else [])]
    return "\n".join(part for line in lines for part in textwrap.wrap(line, _WIDTH))


def _summary_table(summary: Summary) -> str:
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
    """A bar for the speed-up of each kind, with a line at the speed without a draft."""
    timed = [(row.kind, row.speed_up, row.acceptance_rate) for row in summary.rows if row.speed_up is not None]
    if not timed:
        return ""
    scale = _BAR / max(1.25, *(speed_up for _, speed_up, _ in timed))
    plain = round(scale)
    lines = [f"{'speed-up':14}{'no draft'.rjust(plain - 1)} ↓"]
    for kind, speed_up, acceptance in timed:
        accepted = f", {words.share(acceptance)} accepted" if acceptance is not None else ""
        lines.append(f"{_kind(kind)}{_bar(round(speed_up * scale), plain)} {words.times(speed_up)}{accepted}")
    return "\n".join(lines)


def _bar(length: int, plain: int) -> str:
    """A bar of ``length`` out of `_BAR` cells, with a line after the first ``plain`` cells."""
    cells = "█" * length + " " * (_BAR - length)
    return f"{cells[:plain]}│{cells[plain:]}"


def _curve(curve: Curve) -> str:
    """Speeds by draft length, with ``auto`` at its average length."""
    points = [(float(n), str(n), speed) for n, speed in zip(curve.lengths, curve.speeds, strict=True)]
    if curve.auto is not None and curve.auto_length is not None:
        points.append((curve.auto_length, f"auto, {words.number(curve.auto_length, 1)} per pass", curve.auto))
    known = [(name, speed) for _, name, speed in sorted(points) if speed is not None]
    if not known:
        return ""
    scale = _BAR / max(speed for _, speed in known)
    lines = [f"{'draft length':20}{'tok/s':>8}"]
    lines += [f"{name:20}{words.number(speed, 1):>8}  {'█' * round(speed * scale)}" for name, speed in known]
    return "\n".join(lines)


def _differences(report: Report) -> str:
    differing = [(one, one.difference) for one in report.comparisons if one.difference is not None]
    if not differing:
        return ""
    lines = [f"Different texts: {len(differing)} of {len(report.comparisons)}."]
    for comparison, found in differing[:_DIFFERENCES]:
        name = f"{comparison.prompt.kind}, {comparison.prompt.title!r}, seed {comparison.seed}"
        lines += _item(f"{name}, {wording.difference(found, report.setup)}.")
    if len(differing) > _DIFFERENCES:
        lines.append(f"  and {len(differing) - _DIFFERENCES} more; use --output FILE to see all of them.")
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


# ---------------------------------------------------------------- Markdown


def markdown(report: Report) -> str:
    """A complete report: the table by kind, the differences, every prompt, and how to repeat it."""
    blocks = [
        "# Slipstream: decoding with and without a draft",
        _headline(report),
        "## By kind of text",
        _kinds_table(report),
        "*Same text*: both answers are identical. *Accepted*: draft tokens that were accepted ÷ those that were "
        "tested. *Tokens per pass*: the mean acceptance length, 1 + accepted ÷ verify passes. *Speed-up*: decode "
        "speed with the draft ÷ without it, the median over the pairs of runs. *Middle half*: half of the "
        "speed-ups lie in this range. Prompt processing is not included in the speeds.",
        *_curve_blocks(report.curve),
        *_difference_blocks(report),
        *_skipped_blocks(report),
        "## Every prompt",
        _prompts_table(report.comparisons),
        "## How to repeat it",
        f"```\n{wording.command(report.setup)}\n```",
        _repeat_note(report),
        _table(["", ""], [[name, value] for name, value in wording.facts(report.setup)]),
    ]
    return "\n\n".join(blocks) + "\n"


def _headline(report: Report) -> str:
    setup, total = report.setup, summarize(report.comparisons).total
    pair = _plain(setup.target.name) + (f" with the draft {_plain(setup.draft.name)}" if setup.draft else "")
    sentences = [f"{pair}, {setup.date[:10]}."]
    if total.speed_up is not None:
        sentences.append(
            f"With the draft, decoding was **{words.times(total.speed_up)}** as fast as without it (median "
            f"of {total.runs} comparisons)."
        )
    sentences.append(
        f"{total.same} of {total.runs} answers had the same text with and without the draft, with the same seed."
    )
    if len(setup.servers) > 1:
        sentences.append(ON_TWO)
    if len(report.comparisons) < report.planned:
        sentences.append(f"Only {len(report.comparisons)} of {report.planned} comparisons were run.")
    return " ".join(sentences)


def _kinds_table(report: Report) -> str:
    summary = summarize(report.comparisons)
    heads = ["kind", "same text", "accepted", "tokens per pass", "tok/s without draft", "tok/s with draft", "speed-up"]
    heads += ["middle half", "tokens", "accepted by drafter"]
    rows = []
    for row in [*summary.rows, summary.total]:
        drafters = ", ".join(
            f"{one.name} {words.number(one.accepted)} of {words.number(one.tested)}" for one in row.drafters
        )
        rows.append([row.kind, *wording.cells(row), f"{words.number(row.tokens)}", drafters or words.UNKNOWN])
    return _table(heads, rows)


def _curve_blocks(curve: Curve | None) -> list[str]:
    if curve is None:
        return []
    rows = [[str(length), words.number(speed, 1)] for length, speed in zip(curve.lengths, curve.speeds, strict=True)]
    rows.append([f"auto (tested {words.number(curve.auto_length, 1)} per pass)", words.number(curve.auto, 1)])
    return ["## Speed by draft length", _table(["draft length", "tok/s"], rows)]


def _difference_blocks(report: Report) -> list[str]:
    lines = []
    for comparison in report.comparisons:
        if (found := comparison.difference) is not None:
            prompt = comparison.prompt
            name = f"{_plain(prompt.kind)}, “{_plain(prompt.title)}”, seed {comparison.seed}"
            lines.append(f"- {name}, {_plain(wording.difference(found, report.setup))}.")
    return ["## Where texts differ", "\n".join(lines)] if lines else []


def _skipped_blocks(report: Report) -> list[str]:
    lines = [f"- {_plain(s.prompt.kind)}, “{_plain(s.prompt.title)}”: {_plain(s.reason)}" for s in report.skipped]
    return ["## Not answered", "\n".join(lines)] if lines else []


def _prompts_table(comparisons: Sequence[Comparison]) -> str:
    heads = [
        "kind",
        "prompt",
        "seed",
        "tokens",
        "same text",
        "accepted",
        "tok/s without draft",
        "tok/s with draft",
        "speed-up",
    ]
    rows = [
        [
            c.prompt.kind,
            c.prompt.title,
            str(c.seed),
            f"{words.number(c.drafted.figures.completion_tokens)}",
            "yes" if c.same else "no",
            words.share(c.drafted.figures.draft.acceptance_rate),
            words.number(c.plain.figures.decode_tokens_per_second, 1),
            words.number(c.drafted.figures.decode_tokens_per_second, 1),
            words.times(c.speed_up),
        ]
        for c in comparisons
    ]
    return _table(heads, rows)


def _repeat_note(report: Report) -> str:
    note = "Run this in a folder with the files named below; their hashes show whether they are the same."
    if report.setup.servers:
        note = "URL stands for the address of the server."
    if not report.setup.prompt_set:
        note += f" `{wording.REPORT_AS_JSON}` is this comparison exported as JSON, which contains the prompts."
    return note


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *([_plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _plain(text: str) -> str:
    """One line of text, escaped so that Markdown doesn't format it."""
    return _MARKDOWN.sub(r"\\\1", printable(text, 400))


# ---------------------------------------------------------------- CSV


def csv(report: Report) -> str:
    """One line per comparison, each with its complete setup, so that tables of several runs can be joined."""
    setup = msgspec.structs.replace(report.setup, draft=report.setup.draft or ModelFile(name="", file=""))
    made_with = dict(_flat(msgspec.to_builtins(setup), "setup_"))
    made_with["setup_command"] = wording.command(report.setup)
    rows = [{**_figures(comparison), **made_with} for comparison in report.comparisons]
    names = list(rows[0]) if rows else list(made_with)
    output = io.StringIO()
    writer = tables.DictWriter(output, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return output.getvalue()


def _figures(comparison: Comparison) -> dict[str, object]:
    plain, drafted = comparison.plain, comparison.drafted
    draft, found = drafted.figures.draft, comparison.difference
    accepted = {entry.name: entry.accepted for entry in draft.drafters}
    return {
        "kind": comparison.prompt.kind,
        "prompt": comparison.prompt.title,
        "seed": comparison.seed,
        "same_text": comparison.same,
        "speed_up": comparison.speed_up,
        "plain_tokens_per_second": plain.figures.decode_tokens_per_second,
        "drafted_tokens_per_second": drafted.figures.decode_tokens_per_second,
        "plain_tokens": plain.figures.completion_tokens,
        "drafted_tokens": drafted.figures.completion_tokens,
        "plain_seconds": plain.figures.total_seconds,
        "drafted_seconds": drafted.figures.total_seconds,
        "plain_time_to_first_token": plain.figures.time_to_first_token_seconds,
        "drafted_time_to_first_token": drafted.figures.time_to_first_token_seconds,
        "plain_finish_reason": plain.finish_reason,
        "drafted_finish_reason": drafted.finish_reason,
        "prompt_tokens": drafted.figures.prompt_tokens,
        **exported(draft),
        "accepted_from_model": accepted.get("model", 0),
        "accepted_from_ngram": accepted.get("ngram", 0),
        "accepted_from_mtp": accepted.get("mtp", 0),
        "difference_token": found.token if found else None,
        "difference_character": found.character if found else None,
        "plain_candidate": found.plain if found else None,
        "drafted_candidate": found.drafted if found else None,
        "plain_logit": found.plain_logit if found else None,
        "drafted_logit": found.drafted_logit if found else None,
        "score_gap": found.score_gap if found else None,
        "rounding": found.rounding if found else None,
        "near_tie": found.near_tie if found else None,
    }


def _flat(value: dict[str, object], before: str = "") -> Iterable[tuple[str, object]]:
    """Entries of nested objects under joined names, lists as one text."""
    for name, entry in value.items():
        if isinstance(entry, dict):
            yield from _flat(entry, f"{before}{name}_")
        else:
            yield before + name, "; ".join(map(str, entry)) if isinstance(entry, list) else entry


def _cell(value: object) -> object:
    """Text that a spreadsheet would take for a formula gets an apostrophe in front of it (OWASP: CSV injection)."""
    if isinstance(value, str) and value.lstrip()[:1] and (value.lstrip()[0] in _FORMULA or value[0] in "\t\r\n"):
        return f"'{value}"
    return value


# ---------------------------------------------------------------- JSON


def json(report: Report) -> str:
    """Everything, with prompts, texts and token ids; `app.compare.prompts.read` accepts it as a set of prompts."""
    summary = summarize(report.comparisons)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "command": wording.command(report.setup),
        **msgspec.to_builtins(msgspec.structs.replace(report, comparisons=[])),
        "summary": msgspec.to_builtins(summary),
        "comparisons": [_whole(comparison) for comparison in report.comparisons],
    }
    return msgspec.json.format(msgspec.json.encode(without_surrogates(content)), indent=2).decode() + "\n"


def _whole(comparison: Comparison) -> dict[str, object]:
    content = msgspec.to_builtins(comparison)
    del content["command"]
    for name, run in (("plain", comparison.plain), ("drafted", comparison.drafted)):
        del content[name]["pieces"]
        content[name] = {"text": run.text, "thinking": run.thinking, "token_ids": run.token_ids, **content[name]}
    return {**content, "same": comparison.same, "speed_up": comparison.speed_up}


# ---------------------------------------------------------------- files

WRITERS: dict[str, Callable[[Report], str]] = {".md": markdown, ".csv": csv, ".json": json}
"""The function that writes a file with this suffix."""


def encoded(report: Report, suffix: str) -> bytes:
    """The content of a file of one of `WRITERS`."""
    return WRITERS[suffix](report).encode("utf-8", "replace")
