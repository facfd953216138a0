"""Files: our own are written whole or not at all, locked, versioned; digests of large ones. One way for everybody.

Must never import what uses it: only `app.errors` and `app.paths`; neither Qt nor llama.cpp.
"""
