"""Starts and controls an engine process.

`connection` is the protocol without I/O: what may be requested in which state, what the engine's bytes mean, when it
counts as stalled. `process` runs an engine in asyncio's event loop, and for callers that wait for it; the window
runs the same connection in Qt's event loop (`app.ui.engine.client`). `state` describes what an engine is doing, and why
it ended.

Must never import Qt, the engine or llama.cpp.
"""
