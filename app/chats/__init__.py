"""The chats: a tree of messages for each chat, in one SQLite file.

Must never import models, engine or window, only `app.system`, `app.protocol` and `app.storage`; no Qt. The marks of
thinking, which older answers have in their text, are the engine's.
"""
