"""Trains drafters (EAGLE-3 head, draft model, Medusa heads) for a Llama-like model on its own answers."""
