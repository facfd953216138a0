# Read when CMake gets to llama.cpp (scripts/setup): llama-cpp-python also builds the library of llama.cpp's own programs,
# a quarter of all files, which neither the app nor its tests use.
set(LLAMA_BUILD_COMMON OFF)
