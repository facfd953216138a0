"""Slipstream on two models that other people made: SmolLM2 135M Instruct and Gemma 3 270M, behind prompts as long as
people's.

``make real`` runs these, in one process and in their order; ``make test`` doesn't, because the files are downloaded
(``scripts/real-models``). What is tested elsewhere with models of our own is tested here once more, where numbers are
those of real weights and formats: SmolLM2 has a chat template and weights in Q4_1, Gemma is a base model with sliding
windows, K-quants and 262,144 tokens, which is asked in ChatML.
"""
