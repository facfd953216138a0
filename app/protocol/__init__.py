"""What an engine and everybody else say to each other: messages, how they travel in frames, the limits that both sides
keep to, and the definition of every figure. Imports nothing else of the app."""
