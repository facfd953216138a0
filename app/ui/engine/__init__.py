"""The engine as the window sees it: its client, the loaded pair, what a pair is called. No widgets.

Must never import `app.engine`. Only `client` and `child_process` know that the engine is a process.
"""
