"""``slipstream models``: the models on this machine, and how to get more."""

from __future__ import annotations

from app.commands.inspect import inspecting
from app.commands.models.choosing import library_files
from app.commands.models.files import list_models, remove_model, verify_model
from app.commands.models.get import get_model
from app.commands.models.pair import list_drafts
from app.commands.models.plan import show_plan
from app.commands.models.search import search_models
from app.commands.options import Command

_INSPECT = inspecting("MODEL", "describe a model, and say whether two models fit as a pair", library_files)
MODELS = Command(
    "models",
    None,
    (),
    {
        "help": "manage the models on this computer: list, search, get, pair, …",
        "epilog": "MODEL, TARGET and DRAFT: a file, or part of a name that matches exactly one model of the library.",
    },
    (list_models, _INSPECT, list_drafts, show_plan, search_models, get_model, verify_model, remove_model),
)
