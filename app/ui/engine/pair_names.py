"""What a pair is called in the window, and how much it can think, and did."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from app import words
from app.models.names import base_name, model_name
from app.models.text import count_text, printable, visible
from app.protocol.events import Figures, KindFigures, ModelInfo, PairLoaded
from app.protocol.options import TEMPLATE_TITLES
from app.protocol.remote import SERVER_NAMES, RemoteModel, Server
from app.protocol.statistics import acceptance_rate, thinking_and_answer
from app.settings import Pair
from app.ui.engine.pair_files import GUIDE_NAME, PairFiles, is_guide

GUIDE_SUBTITLE = "a tiny model that knows this app"
_HAS_SIZE = re.compile(r"\d ?[MB]\b", re.IGNORECASE)  # 4k is a context
_MODELS_DEFAULT = "Model's default"
_LEVEL_TITLES = {"xhigh": "Extra high"}


def parameters_text(parameters: int) -> str:
    """``16M``, ``1.2B``; empty if unknown."""
    whole = round(parameters, -6) if parameters >= 10_000_000 else parameters
    return count_text(whole) if parameters > 0 else ""


def model_title(model: ModelInfo) -> str:
    """Name and size of a model; only the name if it already contains the size."""
    name = GUIDE_NAME if is_guide(model.path) else _name(model)
    size = parameters_text(model.parameters)
    return name if not size or _HAS_SIZE.search(name) else f"{name} {size}"


def pair_title(pair: PairLoaded | None) -> str:
    """``Slipstream Guide 16M + draft 1M``, ``Qwen3.5 9B · MTP head``, ``Qwen3.5 9B · MTP head + draft 0.8B``,
    ``qwen3.5 · gpu-box:8000``."""
    if pair is None:
        return ""
    if pair.remote is not None:
        return f"{_name(pair.target)} · {host_of(pair.remote.server.address)}"
    target = f"{model_title(pair.target)} · MTP head" if pair.has_head else model_title(pair.target)
    if pair.draft is None:
        return target
    size = parameters_text(pair.draft.parameters)
    same_family = is_guide(pair.target.path)
    draft = f"draft {size}".strip() if same_family else f"draft {model_title(pair.draft)}"
    return f"{target}  +  {draft}"


def pair_details(pair: PairLoaded | None) -> str:
    """Several lines for a tooltip, plain text."""
    if pair is None:
        return ""
    if pair.remote is not None:
        return "\n".join(_remote_lines(pair, pair.remote))
    lines = []
    if is_guide(pair.target.path):
        lines.append(f"{GUIDE_NAME}, {GUIDE_SUBTITLE}")
    lines.append(f"Target: {_model_line(pair.target)}")
    lines += _draft_lines(pair)
    lines.append(f"Context: {pair.context_length:,} tokens")
    if pair.template != "model":
        lines.append(f"Chat template: {'from a file' if pair.template == 'file' else TEMPLATE_TITLES[pair.template]}")
    return "\n".join(lines)


def host_of(address: str) -> str:
    """Host and port of a server's address, for display."""
    try:
        host = urlsplit(address).netloc.rpartition("@")[2]
    except ValueError:
        host = ""
    return printable(host or address, 120)


def server_name(server: Server) -> str:
    """``vLLM 0.29.0``."""
    name = SERVER_NAMES[server.kind]
    return printable(f"{name} {server.version.removeprefix(f'{name.lower()}-')}".strip(), 120)


def _remote_lines(pair: PairLoaded, remote: RemoteModel) -> list[str]:
    lines = [
        f"Model: {_name(pair.target)}",
        f"Server: {server_name(remote.server)}",
        f"Address: {remote.server.address}",
    ]
    return [*map(visible, lines), *([f"Context: {pair.context_length:,} tokens"] if pair.context_length else [])]


def _draft_lines(pair: PairLoaded) -> list[str]:
    lines = [f"Draft: {_model_line(pair.draft)}"] if pair.draft is not None else []
    if pair.has_head:
        file = pair.head_file
        place = (
            f"in a separate file, {visible(Path(file.path).name)}" if file is not None else "inside the target's file"
        )
        lines.append(f"MTP head: {place}")
    lines = lines or ["No draft"]
    if unused := pair.head_refused or pair.head_off:
        lines.append(f"MTP head not in use: {visible(unused)}")
    return lines


def recent_title(pair: Pair | PairFiles | None) -> str:
    """A pair that isn't loaded, or a model on a server; empty if there is none."""
    if pair is None:
        return ""
    if pair.server:
        return visible(" · ".join(filter(None, (pair.target, host_of(pair.server)))))
    if is_guide(pair.target):
        return GUIDE_NAME
    return visible("  +  ".join(map(model_name, filter(None, (pair.target, pair.draft)))))


def recent_titles(pairs: Sequence[Pair]) -> list[str]:
    """Of several pairs; the names of the files where the title doesn't tell them apart."""
    titles = [recent_title(pair) for pair in pairs]
    files = [" + ".join(Path(file).name for file in (pair.target, pair.draft) if file) for pair in pairs]
    return [title if titles.count(title) < 2 else visible(name) for title, name in zip(titles, files, strict=True)]


def speaker(pair: PairLoaded | None) -> str:
    """The author shown above an answer."""
    if pair is None:
        return ""
    return "Guide" if is_guide(pair.target.path) else _name(pair.target)


def has_written(pair: PairLoaded | None, author: str | None) -> bool:
    """Whether ``author`` of a stored answer is this target; earlier versions called it by its inner name."""
    known = [printable(name, 120) for name in pair.target.names] if pair else []
    return author in (speaker(pair), *known)


def thinking_title(level: str) -> str:
    """What a list shows for a level of `PairLoaded.thinking`; empty stands for the model's default."""
    return _LEVEL_TITLES.get(level, level.replace("_", " ").capitalize()) if level else _MODELS_DEFAULT


def thinking_levels(pair: PairLoaded | None, recommended: str = "") -> list[tuple[str, str]]:
    """Levels to choose from and their titles, the default first; empty where the model doesn't think.

    ``recommended``: the level that is used by default, if it isn't left to the model.
    """
    if pair is None or not pair.may_think:
        return []
    default = f"Recommended ({thinking_title(recommended).lower()})" if recommended else _MODELS_DEFAULT
    return [("", default), *((level, thinking_title(level)) for level in pair.thinking)]


def thinking_lines(figures: Figures) -> list[str]:
    """Tokens, seconds and acceptance of the thinking and of the answer; empty without thinking."""
    if not figures.thinking_tokens:
        return []
    thinking, answer = thinking_and_answer(figures.kinds)
    written = max(figures.completion_tokens - figures.thinking_tokens, 0)
    return [
        _part_line("Thinking", figures.thinking_tokens, figures.thinking_seconds, thinking),
        _part_line("Answer", written, answer.seconds, answer),
    ]


def _name(model: ModelInfo) -> str:
    return printable(model.name or Path(model.path).stem, 120)


def _model_line(model: ModelInfo) -> str:
    inner = f"inner name “{model.inner_name}”" if base_name(model.inner_name) != base_name(model.name) else ""
    parts = [_name(model), parameters_text(model.parameters), model.quantization, inner]
    return " · ".join(visible(part) for part in parts if part)


def _part_line(name: str, tokens: int, seconds: float, counts: KindFigures) -> str:
    """``Thinking: 812 tokens in 12 s, 120 of 160 draft tokens accepted (75%)``."""
    parts = [f"{words.tokens(tokens)} in {words.seconds(seconds)}" if tokens and seconds else words.tokens(tokens)]
    if counts.tested:
        rate = words.share(acceptance_rate(counts.accepted, counts.tested))
        parts.append(f"{words.number(counts.accepted)} of {words.draft_tokens(counts.tested)} accepted ({rate})")
    return f"{name}: {', '.join(parts)}"
