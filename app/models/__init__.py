"""Model files: what their headers say, which of them fit together, what they take in memory, where they come from.

Must never import engine, chats or window; no Qt, no llama.cpp.
"""
