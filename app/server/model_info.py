"""What clients are told about the model: its name, its context, its template."""

from __future__ import annotations

import time
from pathlib import PurePath
from typing import Any

import msgspec

from app import __version__
from app.models.gguf import GgufHeader
from app.models.hub.recommended import recommended
from app.models.measurements import up_to_rounding
from app.models.names import name_of_blob, stem_of
from app.models.tokenizer import Tokenizer
from app.protocol.events import PairLoaded


class ModelInfo:
    """The answers about one target. The paths of files stay here."""

    def __init__(self, target: GgufHeader) -> None:
        self.id = name_of_blob(target.path) or stem_of(target.path.name)
        self._file = target.path.name
        self._template = target.chat_template or ""
        tokenizer = target.tokenizer
        self._bos = _text(tokenizer, tokenizer.bos_id) if tokenizer else ""
        self._eos = _text(tokenizer, tokenizer.eos_id) if tokenizer else ""
        self._created = int(time.time())

    def models(self, pair: PairLoaded | None) -> dict[str, Any]:
        """``/v1/models``."""
        return {"object": "list", "data": [self.model(pair)]}

    def model(self, pair: PairLoaded | None) -> dict[str, Any]:
        """``/v1/models/ID``; without facts while nothing is loaded."""
        found: dict[str, Any] = {"id": self.id, "object": "model", "created": self._created, "owned_by": "slipstream"}
        if pair:
            found["max_model_len"] = pair.context_length
            found["meta"] = {
                "n_ctx": pair.context_length,
                "n_ctx_train": pair.target.training_context,
                "n_params": pair.target.parameters,
                "size": pair.target.size_bytes,
            }
        return found

    def props(self, pair: PairLoaded) -> dict[str, Any]:
        """``/props``, as llama-server has it, with a file's name for its path."""
        return {
            "default_generation_settings": {"n_ctx": pair.context_length, "params": _parameters(pair)},
            "total_slots": 1,
            "model_alias": self.id,
            "model_path": self._file,
            "modalities": {"vision": pair.projector is not None, "audio": False},
            "chat_template": self._template if pair.template == "model" else "",
            "bos_token": self._bos,
            "eos_token": self._eos,
            "build_info": f"slipstream-{__version__}",
            "slipstream": {
                "draft": _name(pair),
                "mtp_head": pair.has_head,
                "drafting_off": pair.drafting_off,
                "exact_unit": pair.exact_unit or None,
                "template": pair.template,
                "template_refused": pair.template_refused,
                "thinking": pair.thinking,
                "template_variables": pair.template_variables,
                "tool_format": pair.tool_format,
                "limits": _limits(pair),
            },
        }


def _limits(pair: PairLoaded) -> list[str]:
    """What this model, its chat template or this server can't do, as sentences."""
    found = ["One answer to a request, no echo or suffix of a prompt, and no files but text and images."]
    found += filter(None, [up_to_rounding(pair)])
    if pair.projector is None:
        found.append("It sees no images: no projector (mmproj) is loaded.")
    if pair.tool_format == "general":
        found.append("Its chat template has no form for tools that is known here: a general form is used.")
    if not pair.thinking:
        found.append("How much it thinks can't be chosen.")
    if pair.draft is None and not pair.has_head:
        found.append("There is no draft model or MTP head: n-grams and grammars draft.")
    return found


def _name(pair: PairLoaded) -> str | None:
    return PurePath(pair.draft.path).stem if pair.draft else None


def _text(tokenizer: Tokenizer, token: int | None) -> str:
    if token is None or not 0 <= token < len(tokenizer.tokens):
        return ""
    return tokenizer.tokens[token].decode("utf-8", "replace")


def _parameters(pair: PairLoaded) -> dict[str, Any]:
    sampling = msgspec.to_builtins(recommended(pair).sampling)
    names = {"repetition_penalty": "repeat_penalty", "penalty_window": "repeat_last_n"}
    return {names.get(name, name): value for name, value in sampling.items()}
