"""The chats: a tree of messages for each chat, in one SQLite file.

Must never import models, engine or window, only `app.system`, `app.protocol` and `app.storage`; no Qt. The thinking
marks in the text of older answers come from the engine.
"""
