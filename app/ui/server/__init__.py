"""The window's engine for other programs: the server's process, its requests, and what the window says about them.

Must never import the chats: what other programs say goes into none of them, and their requests wait behind them.
"""
