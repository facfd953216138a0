"""The engine's process: commands in, events out, one loaded pair, the KV caches of recent chats.

Must never call llama.cpp itself: `app.engine.llama` does.
"""
