"""Slipstream's process for servers against servers that other people made, with SmolLM2: vLLM on the processor, and
llama-server. ``scripts/real-servers`` installs them and runs these; ``make test`` doesn't.

A test holds for both, unless it says which; what differs between them stands in one place each, in words.
"""
