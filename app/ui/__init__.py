"""Everything Qt, and nothing else: the window, its dialogs and what they are made of.

Must never import the engine, only the messages of `app.protocol`; nothing but `app.__main__` imports it.
"""
