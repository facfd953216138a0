"""Decides which drafter drafts next and how many tokens, based on costs, acceptance and what was learned earlier.

Must never import the process around it (`app.engine.host`) or llama.cpp.
"""
