"""The drafter that uses the target's own MTP head."""

from __future__ import annotations

from app.engine.drafters import Needs
from app.engine.drafters.model import ModelDrafter
from app.protocol.options import DrafterName


class MtpDrafter(ModelDrafter):
    """Drafts as a draft model does, with a head whose cache follows the target's.

    Every token of a draft after the first builds on a hidden state of the head's own, so what was accepted of them is
    processed again with those of the target.
    """

    name: DrafterName = "mtp"
    needs: Needs = "hidden states"
