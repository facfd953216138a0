"""Starts and controls an engine process.

`connection` is the protocol without I/O: which requests each state allows, what the engine's bytes mean, when it counts
as stalled, and why it ended. `process` runs an engine in asyncio's event loop, with a blocking front; the window runs
the same connection in Qt's event loop (`app.ui.engine.client`).

Must never import Qt, the engine or llama.cpp.
"""
