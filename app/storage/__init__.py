"""Files: our own are written completely or not at all, locked and versioned; digests of large files.

Must never import what uses it: only `app.system` and `app.system`; neither Qt nor llama.cpp.
"""
