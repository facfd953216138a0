"""Compares answers with and without a draft, with the same prompts and seeds: differences, speed, and a report.

Must never import chats, commands or the window; no Qt.
"""
