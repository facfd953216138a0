"""The transcript, the composer and the one safe Markdown widget."""
