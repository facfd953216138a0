"""Starts and drives an engine process.

`connection` is the protocol without any input or output: what may be asked for in which state, what the bytes of the
engine mean, when it counts as stalled. `process` runs an engine for callers that wait for it, such as commands; the
window runs the same connection in Qt's event loop (`app.ui.engine.local_engine`). `state` says where an engine is, and
why it ended.

Must never import Qt, the engine or llama.cpp.
"""
