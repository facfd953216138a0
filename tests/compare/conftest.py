from __future__ import annotations

from tests.engine.conftest import _quick_calibration, engine, load, random_pair

__all__ = ["_quick_calibration", "engine", "load", "random_pair"]
