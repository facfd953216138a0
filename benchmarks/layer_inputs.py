"""Whether llama.cpp gives the layer inputs of exactly those architectures that `app.models.heads.LAYER_INPUTS` lists.

    python -m benchmarks.layer_inputs

llama.cpp's generator and ours write a tiny model of each architecture. Each is asked in a process of its own, because
llama.cpp ends the process where a graph doesn't give them: the inputs of all layers have to be there for every token,
and be the same for a token by itself. The hidden state after the last layer, too, for those in `STATES`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from app.engine.llama import backend
from app.engine.llama.context import Context
from app.engine.llama.head import found, states_switch
from app.engine.llama.model import Model
from app.models.gguf import read_header
from app.models.heads import LAYER_INPUTS, STATES
from app.protocol.options import LoadSettings
from benchmarks.architectures import write_models

TOKENS = list(range(3, 27))
GIVEN, HAS_STATE = "inputs", "state"


def given(path: Path) -> set[str]:
    """What llama.cpp gives of the model at ``path``. Ends the process if it gives nothing."""
    backend.start()
    model = Model(path, 0, lambda _: True)
    context = Context(model, LoadSettings(batch_size=32, micro_batch_size=16), length=256, threads=1)
    for layer in range(model.layers):
        found("llama_set_embeddings_layer_inp")(context.handle, layer, True)
    states_switch()(context.handle, True, False)

    def rows(get: str, *layer: int, tokens: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        return np.ctypeslib.as_array(found(get)(context.handle, *layer), (tokens, model.state_width)).copy()

    context.decode(TOKENS, 2)
    inputs = [rows("llama_get_embeddings_layer_inp", layer, tokens=len(TOKENS)) for layer in range(model.layers)]
    states = rows("llama_get_embeddings_nextn", tokens=len(TOKENS))
    context.clear()
    context.decode(TOKENS[:-1], 1)
    context.decode(TOKENS[-1:], 1)
    alone = rows("llama_get_embeddings_layer_inp", model.layers - 1, tokens=1)[0]
    are_given = all(np.isfinite(each).all() and each.any(axis=1).all() for each in inputs)
    are_same = are_given and np.allclose(alone, inputs[-1][-1], rtol=1e-2, atol=1e-4 * np.abs(alone).max())
    kinds = {GIVEN: are_same, HAS_STATE: states.any(axis=1).all()}
    return {kind for kind, is_there in kinds.items() if is_there}


def asked(path: Path) -> set[str]:
    """The same, from another process."""
    command = [sys.executable, "-m", "benchmarks.layer_inputs", str(path)]
    return set(subprocess.run(command, capture_output=True, text=True, check=False).stdout.split())


def main() -> int:
    if len(sys.argv) > 1:
        print(*given(Path(sys.argv[1])))
        return 0
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        write_models(Path(name))
        for path in sorted(Path(name).glob("*.gguf")):
            architecture, gives = read_header(path).architecture, asked(path)
            is_listed, has_state = architecture in LAYER_INPUTS, architecture in STATES
            is_right = is_listed == (GIVEN in gives) and has_state <= (HAS_STATE in gives)
            wrong += not is_right
            if is_listed or not is_right:
                print(architecture, *sorted(gives), "" if is_right else "IS LISTED WRONGLY", flush=True)
    print("the lists are right" if not wrong else f"{wrong} are listed wrongly")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
