"""The models on this machine: finding them, remembering their headers, deleting their files.

Must never import the network (`app.models.hub`) or the downloads.
"""
