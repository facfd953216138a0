"""The models on this machine: looking for them, keeping what is known of them, moving and deleting their files.

Must never import the network (`app.models.hub`) or the downloads.
"""
