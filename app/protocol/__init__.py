"""The protocol between an engine and the rest of the app: messages, their frames, limits, and the definition of every
figure.

Must never import another part of the app: all others import this one. The helper process imports only its `frames`.
"""
