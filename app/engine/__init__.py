"""Inference, in its own process: loads a pair, drafts, verifies and answers.

Must never import chats, compare, commands or the window; no Qt. Others communicate with it through the messages of
`app.protocol`.
"""
