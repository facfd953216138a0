"""Inference, in a process of its own: a pair is loaded, it drafts, verifies and answers.

Must never import chats, compare, commands or the window; no Qt. Others talk to it in the messages of `app.protocol`.
"""
