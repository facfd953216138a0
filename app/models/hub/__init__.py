"""Hugging Face: what it offers, and the only way there.

`app.remote` uses httpx2, too. Must never import the library.
"""
