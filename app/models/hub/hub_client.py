"""The client ``huggingface_hub`` gets: one attempt, and one page."""

from __future__ import annotations

from typing import Any

import httpx2

from app.models.hub.refusals import refused, translated


class HubClient(httpx2.Client):
    """Raises our own errors where ``huggingface_hub`` would try again for minutes: the user is waiting."""

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        with translated(request.url.host):
            response = super().send(request, **options)
        if response.status_code == 429 or response.status_code >= 500:
            raise refused(response, str(request.url))
        # A mirror could lead from page to page without an end, and what it warns of would go into the log.
        for name in ("Link", "X-HF-Warning"):
            response.headers.pop(name, None)
        return response
