"""Model files: what their headers say and which of them fit together. No Qt, no llama.cpp."""
