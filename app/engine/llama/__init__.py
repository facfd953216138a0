"""The only part that calls llama.cpp: models, contexts, their memory and its copies, devices.

Must never import the process (`app.engine.host`), the drafters or the policy.
"""
