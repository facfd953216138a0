"""The protocol between an engine and the rest of the app: messages, their frames, the limits of both sides, and the
definition of every figure.

Must never import another part of the app: all others import this one, and the helper process only its `frames`.
"""
