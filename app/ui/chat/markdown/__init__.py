"""Markdown that nobody vouches for, drawn safely: cut into blocks, written, colored, tinted, shown."""
