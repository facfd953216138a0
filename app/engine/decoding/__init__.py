"""One answer: prompt and template, sampling, accept rules, the draft–verify loop, and text.

Must never import the process around it (`app.engine.host`) or llama.cpp: it is given a cache to decode with.
"""
