"""What an engine and everybody else say to each other: messages, and how they travel in frames."""
