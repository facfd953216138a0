"""How the tests of models run."""

from __future__ import annotations

import hypothesis

# A busy machine takes longer, and no test may fail for that.
hypothesis.settings.register_profile("without deadline", deadline=None)
hypothesis.settings.load_profile("without deadline")
