"""The engine as the window sees it: its interface, its process, the loaded pair. No widgets.

Must never import `app.engine`. Only `local_engine` knows that the engine is a process.
"""
