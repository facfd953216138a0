"""The engine's process: commands in, events out, one loaded pair, the KV caches of recent chats. No Qt."""
