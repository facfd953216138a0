"""Markdown without a window: its dialect, the blocks of a text that grows, its formulas, and the text a reader sees.

Must never import Qt, or what a chat is.
"""
