"""Fields of requests that other servers know and that would change an answer, but that aren't read here."""

from __future__ import annotations

import msgspec

from app import decoders
from app.server.warnings import Warnings

_CHANGING = {
    *("prediction", "modalities", "audio", "web_search_options", "guided_grammar", "regex", "ebnf", "min_tokens"),
    *("ignore_eos", "bad_words"),
    *("stop_token_ids", "include_stop_str_in_output", "mirostat", "dynatemp_range", "typical_p", "top_a", "tfs_z"),
    *("dry_multiplier", "xtc_probability", "top_n_sigma", "min_keep", "samplers", "lora", "context_management"),
    *("mcp_servers", "container", "use_beam_search", "length_penalty", "think", "truncate_prompt_tokens"),
}
_NOTHING = (b"null", b"false", b"0", b"0.0", b"[]", b"{}", b'""')
_TEXT_ONLY = b'["text"]'


def unread(body: bytes) -> Warnings:
    """What of a request that has been read was left out."""
    warnings = Warnings()
    for name, value in decoders.decode(body, dict[str, msgspec.Raw]).items():
        if name in _CHANGING and bytes(value) not in (*_NOTHING, _TEXT_ONLY):
            warnings.add(f"The field {name} was left out: this server doesn't have it.")
    return warnings
