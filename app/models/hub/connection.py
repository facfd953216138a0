"""Hugging Face as the settings want it: the network, the hub through it, and the access token that goes along."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from app.models.hub.api import Hub
from app.models.hub.network import Network, NetworkSettings
from app.models.hub.tokens import TokenStore

if TYPE_CHECKING:
    from app.settings import Settings


class HubConnection:
    """One for each process. ``network.settings`` may change while it is used."""

    def __init__(self, settings: NetworkSettings) -> None:
        self.tokens = TokenStore()
        self.network = Network(settings, lambda: self.tokens.get(self.host))
        self.hub = Hub(self.network)

    @property
    def host(self) -> str:
        """Whose token it is. Raises `KnownError` for an address that is not safe."""
        return urlsplit(self.network.endpoint).hostname or ""


def network_settings(values: Settings) -> NetworkSettings:
    """What the settings say about the network."""
    return NetworkSettings(endpoint=values.hub_endpoint, offline=values.offline, token_to_mirror=values.token_to_mirror)
