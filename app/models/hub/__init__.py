"""Hugging Face: what it offers, and the only way there.

The only part that uses huggingface_hub and keyring; `app.remote` uses httpx2, too. Must never import the library.
"""
