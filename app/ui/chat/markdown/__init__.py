"""Markdown that nobody vouches for, drawn safely: cut into blocks, written, colored, tinted, shown.

Must never import the chat around it, but for the buttons of `parts`.
"""
