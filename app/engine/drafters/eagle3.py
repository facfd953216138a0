"""The drafter that uses an EAGLE-3 head beside the target."""

from __future__ import annotations

from app.engine.drafters import Needs
from app.engine.drafters.mtp import MtpDrafter
from app.protocol.options import DrafterName


class Eagle3Drafter(MtpDrafter):
    """Drafts as an MTP head does. A head with a draft vocabulary proposes only tokens of that."""

    name: DrafterName = "eagle3"
    needs: Needs = "layer inputs"
