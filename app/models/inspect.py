"""The output of `slipstream inspect` about model files, as data and as text."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import msgspec

from app import words
from app.models.gguf import GgufHeader, ModelFileError, Split, check_loadable
from app.models.gguf_parser import Tokenizer
from app.models.heads import find_projector, has_head, head_kind, head_problem, head_title, is_head_only, layers_read
from app.models.memory_shape import shape_of
from app.models.pairing import Verdict
from app.words import printable


def describe(header: GgufHeader) -> dict[str, Any]:
    """A model file as data for JSON; unspecified values are ``None``."""
    problem, split = _problem(header), header.split
    return {
        "path": str(header.path),
        "file_size": header.file_size,
        "gguf_version": header.version,
        "loadable": problem is None,
        "problem": problem,
        "name": header.known_name,
        "inner_name": header.name,
        "architecture": header.architecture or None,
        "quantization": header.quantization or None,
        "parameters": header.parameters,
        "tensors": len(header.tensors),
        "tensor_bytes": header.tensor_bytes,
        "tensor_types": dict(Counter(tensor.type for tensor in header.tensors).most_common()),
        **_known(header, "layers", "heads", "kv_heads", "width", "training_context"),
        "rope": _known(header.rope, *header.rope.__struct_fields__),
        **_known(header, "experts", "experts_used", "mtp_layers", "projection"),
        "head": head_kind(header),
        "target_layers": layers_read(header) or None,
        "kept_state": header.running_state,
        "chat_template": header.chat_template,
        "tokenizer": _describe_tokenizer(header.tokenizer) if header.tokenizer else None,
        "split": split
        and {
            "number": split.number,
            "count": split.count,
            "files": [file.name for file in split.files],
            "missing": [file.name for file in split.missing],
        },
    }


def _known(facts: msgspec.Struct, *names: str) -> dict[str, Any]:
    """These fields; ``None`` for those the file doesn't specify."""
    return {name: getattr(facts, name) or None for name in names}


def describe_pair(target: GgufHeader, draft: GgufHeader, verdict: Verdict) -> dict[str, Any]:
    """Two files and whether they fit, as data for JSON."""
    return {
        "target": describe(target),
        "draft": describe(draft),
        "pair": dataclasses.asdict(verdict),
    }


def readable(header: GgufHeader) -> str:
    """A model file for a terminal: one fact per line, no final line break, safe to print."""
    template, state = header.chat_template, header.running_state
    rows = [
        ("File", f"{printable(str(header.path), 500)} ({words.size(header.file_size)}, GGUF version {header.version})"),
        ("Name", printable(header.known_name)),
        ("Inner name", printable(header.name) if header.name != header.known_name else ""),
        ("Architecture", printable(header.architecture) or "not specified"),
        ("Size", _size_row(header)),
        ("Shape", _shape_row(header)),
        (
            "Context",
            f"{words.number(header.training_context)} tokens in training"
            if header.training_context
            else "not specified",
        ),
        ("Rope", _rope_row(header)),
        (
            "Experts",
            f"{words.number(header.experts)}, {words.number(header.experts_used)} used per token"
            if header.experts
            else "",
        ),
        (head_title(header.architecture), _head_row(header)),
        ("Projector", f"for models of width {words.number(header.projection)}" if header.is_projector else ""),
        ("Sees with", printable(beside.path.name) if (beside := find_projector(header)) else ""),
        ("Tokenizer", _tokenizer_row(header.tokenizer)),
        ("Special", _special_row(header.tokenizer)),
        (
            "Template",
            f"built in, {words.number(len(template))} characters" if template is not None else "none (ChatML is used)",
        ),
        ("Parts", _split_row(header.split)),
        (
            "Drafting",
            f"a {state} model: whether it can undo rejected tokens is tested when it is loaded" if state else "",
        ),
        ("Loadable", _problem(header) or "yes"),
    ]
    return "\n".join(f"{label + ':':<14}{text}" for label, text in rows if text)


def readable_pair(target: GgufHeader, draft: GgufHeader, verdict: Verdict) -> str:
    """Two files and whether they fit, for a terminal."""
    parts = ["Target", readable(target), "", "Draft", readable(draft), "", verdict.reason]
    return "\n".join([*parts, *(line for line in (verdict.warning, verdict.note) if line)])


def _problem(header: GgufHeader) -> str | None:
    try:
        check_loadable(header)
    except ModelFileError as error:
        return str(error)
    return None


def _describe_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    facts = msgspec.structs.asdict(tokenizer)
    return facts | {"tokens": facts.pop("size"), "pre": tokenizer.pre or None}


def _size_row(header: GgufHeader) -> str:
    if not header.tensors:
        return "no weights"
    size = words.size(header.tensor_bytes)
    return f"{words.compact(header.parameters)} parameters, {header.quantization}, {size} of weights"


def _shape_row(header: GgufHeader) -> str:
    if not header.layers:
        return ""
    heads = (
        f"{words.number(header.heads)} heads, {words.number(header.kv_heads)} key/value heads, " if header.heads else ""
    )
    return f"{words.count(header.layers, 'layer')}, {heads}width {words.number(header.width)}"


def _head_row(header: GgufHeader) -> str:
    layers = words.count(header.mtp_layers, "layer")
    if not has_head(header):
        return f"not in this file ({layers})" if header.mtp_layers else ""
    place = "without the model it belongs to" if is_head_only(header) else "inside"
    if read := layers_read(header):
        layers, size = f"reads layers {', '.join(map(str, read))}", words.size(header.tensor_bytes)
    else:
        shape = shape_of(header)
        size = words.size(shape.skipped + sum(layer.weights for layer in shape.layers[-header.mtp_layers :]))
    problem = head_problem(header)
    return f"{place}, {layers}, {size}. {printable(problem, 200)}" if problem else f"{place}, {layers}, {size}"


def _rope_row(header: GgufHeader) -> str:
    rope = header.rope
    parts = []
    if rope.base:
        parts.append(f"base {words.number(rope.base)}")
    if rope.dimensions:
        parts.append(f"{words.number(rope.dimensions)} dimensions")
    if rope.scaling and rope.scaling != "none":
        parts.append(f"scaling {printable(rope.scaling)} × {rope.factor:g}")
    if rope.original_context:
        parts.append(f"from {words.number(rope.original_context)} tokens")
    return ", ".join(parts)


def _tokenizer_row(tokenizer: Tokenizer | None) -> str:
    if tokenizer is None:
        return "none"
    pre = f", pre-tokenizer {printable(tokenizer.pre)}" if tokenizer.pre else ""
    return f"{printable(tokenizer.kind)} ({printable(tokenizer.model)}), {words.number(tokenizer.size)} tokens{pre}"


def _special_row(tokenizer: Tokenizer | None) -> str:
    if tokenizer is None:
        return ""
    ids = (("BOS", tokenizer.bos_id), ("EOS", tokenizer.eos_id), ("EOT", tokenizer.eot_id))
    named = [f'{name} {id_} "{printable(tokenizer.tokens[id_])}"' for name, id_ in ids if id_ is not None]
    added = [name for name, adds in (("BOS", tokenizer.add_bos), ("EOS", tokenizer.add_eos)) if adds]
    return ", ".join([*named, f"adds {' and '.join(added)}" if added else "adds none"])


def _split_row(split: Split | None) -> str:
    if split is None:
        return ""
    missing = f", {len(split.missing)} missing" if split.missing else ""
    return f"file {split.number} of {split.count}{missing}"
