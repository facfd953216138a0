from __future__ import annotations

from tests.engine.conftest import engine, load, random_pair

__all__ = ["engine", "load", "random_pair"]
