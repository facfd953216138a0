"""On a GPU: what `make gpu-test` runs besides the engine's other tests, which load everything onto it. Skipped without.

The GPU may be made of software, where a prompt of 500 tokens takes half a minute: models are tiny, prompts short.
"""
