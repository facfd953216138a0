"""Model files: what their headers say, which of them fit together, how much memory they take, where they come from.

Must never import engine, chats or window; no Qt, no llama.cpp.
"""
