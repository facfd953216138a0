"""Measured figures; they print and never fail a test. ``python -m benchmarks`` runs all of them."""

import os

from app import system

system.prepare_engine(os.environ)
