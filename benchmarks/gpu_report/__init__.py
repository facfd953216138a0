"""What to measure on a machine with a GPU, in half an hour: `scripts/gpu-report`.

`packing`, `building`, `results`, `timetable`, `running` and `writing` import neither llama.cpp nor NumPy: they run
before anything is built. The other modules measure; each of their steps runs in a process of its own (`steps`).
"""
