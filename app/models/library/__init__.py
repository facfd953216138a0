"""The models on this machine: finding them, remembering what is known about them, moving and deleting their files.

Must never import the network (`app.models.hub`) or the downloads.
"""
