"""Turns attached files into text, in the helper process: one module for each kind of file. `reading` picks it."""
