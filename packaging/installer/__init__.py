"""Makes Slipstream's packages for the system it runs on; ``packaging/README.md`` describes them."""
