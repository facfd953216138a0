"""Our own files, written completely or not at all, locked and versioned; digests of large files.

Must never import its users, Qt or llama.cpp: only `app.system`.
"""
