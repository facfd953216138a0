"""The only room that calls llama.cpp: models, contexts, their memory and its copies, devices. No Qt."""
