"""One answer: prompt and template, sampling, accept rules, the draft–verify loop, text and figures.

Must never import the process around it (`app.engine.host`) or llama.cpp: it is given a cache to decode with.
"""
