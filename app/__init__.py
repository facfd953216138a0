"""Slipstream: chat with local language models, drafted ahead and verified."""

__version__ = "0.1.0"
