"""What to measure on a machine with a GPU, in half an hour: `scripts/gpu-report`.

`packing`, `building`, `results`, `running` and `writing` need only Python itself, because they run before anything is
installed there. The other modules measure; each of their steps runs in a process of its own (`steps`).
"""
