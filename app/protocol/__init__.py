"""What an engine and everybody else say to each other: messages, how they travel in frames, the limits that both sides
keep to, and the definition of every figure.

Must never import another part of the app: everybody imports this one, and the helper process only its `frames`.
"""
