"""Files of our own: written whole or not at all, locked, versioned. One way to do it for everybody who keeps something.

Imports nothing of the app but `app.errors`; neither Qt nor llama.cpp.
"""
