"""Hugging Face: its models, and the only code that connects to it.

The only part that uses huggingface_hub and keyring; `app.remote` uses httpx2, too. Must never import the library.
"""
