"""Makes the bundled pair, the Slipstream Guide: corpus in, two GGUF files and their provenance out."""
