"""Hugging Face: what it offers, and the only way to the network.

The only part that uses httpx2, huggingface_hub and keyring. Must never import the library.
"""
