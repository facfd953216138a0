"""The protocol between an engine and the rest of the app: messages, frames, limits, and every figure's definition.

Must never import another part of the app: all others import this one. The helper process imports only its `frames`.
"""
