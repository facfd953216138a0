"""What an engine and everybody else say to each other: messages, and how they travel in frames.

Must never import another part of the app: everybody imports this one, and the helper process only its `frames`.
"""
