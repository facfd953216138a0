"""Model files: their headers, which of them fit together, their memory needs, and where they come from.

Must never import engine, chats or window; no Qt, no llama.cpp.
"""
