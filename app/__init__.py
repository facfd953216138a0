"""Slipstream: chat with local language models, made faster by speculative decoding."""

__version__ = "0.2.0"

APPLICATION_ID = "app.slipstream.Slipstream"
"""The app's name in desktop entries, in its windows and in its bundle on macOS."""
