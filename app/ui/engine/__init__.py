"""The engine as the window sees it: its interface, its process, the loaded pair, trials of new pairs. No widgets.

Must never import `app.engine`. Only `local_engine` and `process` know that the engine is a process.
"""
