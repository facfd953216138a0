"""Slipstream: chat with local language models, made faster by speculative decoding."""

__version__ = "0.2.0"

APPLICATION_ID = "app.slipstream.Slipstream"
"""The app's id in desktop entries, windows and the macOS bundle."""
