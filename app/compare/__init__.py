"""The same prompts and seeds with and without a draft: what differs, how much faster it is, and a reproducible report.

Must never import chats, commands or the window; no Qt.
"""
