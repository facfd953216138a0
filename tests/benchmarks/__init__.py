"""Measured figures; they print and never fail a test. ``python -m tests.benchmarks`` runs all of them."""
