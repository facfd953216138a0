"""How much memory a pair takes once it is loaded."""

from __future__ import annotations

from app.models.shape import ModelShape, shape_of

__all__ = ["ModelShape", "shape_of"]
