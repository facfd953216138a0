"""Serves other programs with the window's engine: the server's process, its requests, and how the window shows them.

Must never import the chats: other programs' requests are never stored in them, and wait behind them.
"""
