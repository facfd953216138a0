"""Hugging Face: what is there, what it is, and the one way to the network.

The only part that uses httpx2, huggingface_hub and keyring. Must never import the library.
"""
