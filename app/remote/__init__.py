"""Other people's engines: a process that speaks our protocol on one side and OpenAI's dialect on the other.

`process` takes the same commands as our engine's process. `connecting` identifies a server and knows its dialect;
`generation` asks for an answer (`requests`), reads it (`replies`) and counts (`figures`). All requests go through
`http`, which also turns failures into sentences.

Must never import Qt, the engine or llama.cpp. Keys come over the pipe and go into one request header, nowhere else.
"""
