"""Hugging Face: what is there, what it is, and the one way to the network. No Qt."""
