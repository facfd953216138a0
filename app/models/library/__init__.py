"""The models on this machine: looking for them, keeping what is known of them, moving and deleting their files."""
