"""The models on this machine: finding them, remembering what is known about them, deleting their files.

Must never import the network (`app.models.hub`) or the downloads.
"""
