"""The chats: a tree of messages for each chat, in one SQLite file. No Qt."""
