"""Slipstream under trouble: kills, damaged files, full disks (docs/reliability.md).

``make proof`` runs these; ``make test`` doesn't. The windows are real ones, each in a process of its own.
"""
