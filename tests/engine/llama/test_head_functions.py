"""The names of llama.cpp's functions for heads, which are in no header that it promises to keep."""

from __future__ import annotations

import re
from pathlib import Path

import llama_cpp
import pytest

from app.engine.llama import head


@pytest.mark.parametrize("name", head._FUNCTIONS)
def test_a_function_is_found(name: str) -> None:
    assert callable(head.found(name))


def test_names_of_other_compilers_are_those_that_llama_cpp_python_knows() -> None:
    """It lists some of them, for all systems."""
    listed = (Path(llama_cpp.__file__).parent / "llama_cpp_ext.py").read_text()
    names = [name for name in head._FUNCTIONS if f'"{name}"' in listed]
    assert len(names) >= 4
    for name in names:
        assert set(head.spellings(name)) <= set(re.findall(r'"([^"\s]+)"', listed))
