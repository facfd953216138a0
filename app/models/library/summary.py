"""What a library keeps of a model's header: small, and enough for lists, verdicts and rankings."""

from __future__ import annotations

import hashlib

import msgspec

from app.models.gguf import GgufHeader
from app.models.shape import ModelShape, shape_of
from app.models.tokenizer import Tokenizer

_MAX_LICENCE = 100


class TokenizerSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A tokenizer without its tokens; ids are ``None`` where there is no such token."""

    kind: str
    """llama.cpp's type of vocabulary: ``SPM``, ``BPE`` …"""
    model: str
    pre: str
    size: int
    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    add_eos: bool
    fingerprint: str
    """SHA-256 of the list of tokens."""


class ModelSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A model's header without its tensors, tokens and texts. Numbers are 0 where the file does not say."""

    name: str
    architecture: str
    quantization: str
    parameters: int
    tensor_bytes: int
    layers: int
    heads: int
    kv_heads: int
    width: int
    training_context: int
    experts: int
    experts_used: int
    mtp_layers: int
    kept_state: str | None
    """``recurrent`` or ``hybrid`` when it keeps a running state."""
    template_sha256: str | None
    """Of its chat template's UTF-8 bytes; ``None`` where it has none."""
    licence: str
    """As the file names it; empty where it does not."""
    split_count: int
    """Files the model is in."""
    tokenizer: TokenizerSummary | None
    shape: ModelShape
    """What it takes in memory, for the plan."""


def summary_of(header: GgufHeader) -> ModelSummary:
    """The part of ``header`` that is kept."""
    template = header.chat_template
    licence = header.metadata.get("general.license")
    return ModelSummary(
        name=header.name,
        architecture=header.architecture,
        quantization=header.quantization,
        parameters=header.parameters,
        tensor_bytes=header.tensor_bytes,
        layers=header.layers,
        heads=header.heads,
        kv_heads=header.kv_heads,
        width=header.width,
        training_context=header.training_context,
        experts=header.experts,
        experts_used=header.experts_used,
        mtp_layers=header.mtp_layers,
        kept_state=header.kept_state,
        template_sha256=hashlib.sha256(template.encode()).hexdigest() if template is not None else None,
        licence=licence[:_MAX_LICENCE].decode("utf-8", "replace") if isinstance(licence, bytes) else "",
        split_count=header.split.count if header.split else 1,
        tokenizer=_tokenizer_summary(header.tokenizer) if header.tokenizer else None,
        shape=shape_of(header),
    )


def _tokenizer_summary(tokenizer: Tokenizer) -> TokenizerSummary:
    return TokenizerSummary(
        kind=tokenizer.kind,
        model=tokenizer.model,
        pre=tokenizer.pre,
        size=tokenizer.size,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        add_bos=tokenizer.add_bos,
        add_eos=tokenizer.add_eos,
        fingerprint=tokenizer.fingerprint,
    )
