"""Everything Qt, and nothing else: the window, its dialogs and their parts.

Must never import the engine, only the messages of `app.protocol`; only `app.__main__` imports it.
"""
