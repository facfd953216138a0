"""The list of chats: its rows and how they look, the results of a search, the trash. `ChatList` puts them together.

Must never import `app.ui.shell`; what can be done stands in `app.ui.actions`.
"""
