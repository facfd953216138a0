"""The Compare window: answers written plain and with draft, side by side."""
