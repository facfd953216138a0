"""The same prompts and seeds plain and with a draft: what differs, how much faster, and a report to repeat it by.

Must never import chats, commands or the window; no Qt.
"""
