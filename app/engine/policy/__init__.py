"""Who drafts next and how far, and what that is decided from: costs, acceptance, what was learned earlier.

Must never import the process around it (`app.engine.host`) or llama.cpp.
"""
