"""Inference, in a process of its own; no Qt."""
