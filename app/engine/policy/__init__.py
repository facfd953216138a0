"""Who drafts next and how far, and what that is decided from: costs, acceptance, what was learned earlier. No Qt,
no llama.cpp."""
