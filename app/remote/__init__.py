"""Other people's engines: a process that speaks our protocol on one side and OpenAI's dialect on the other.

`process` takes the same commands as our engine's process. `connecting` finds out what a server is (`detection`) and can
do (`dialects`); `generation` asks it (`requests`), reads what comes (`lines`, `replies`, `rounds`) and counts
(`figures`, `counters`). `http` is the only way to a server, `failures` says in plain words what went wrong.

Must never import Qt, the engine or llama.cpp. Keys come over the pipe and go into one request header, nowhere else.
"""
