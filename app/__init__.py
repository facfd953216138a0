"""Slipstream: chat with local language models, drafted ahead and verified."""

__version__ = "0.1.0"

APPLICATION_ID = "app.slipstream.Slipstream"
"""The name of the app in desktop entries, of its windows and of its bundle on macOS."""
