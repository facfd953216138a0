"""Writes a trained model as a GGUF file that llama.cpp reads as a `llama` with a `gpt2` tokenizer, and reads it."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor

from guide.model import NORM_EPSILON, ROPE_BASE, Llama, Shape
from guide.tokenizer import CHAT_TEMPLATE, END, MARKERS, tokenizer_from


def write_gguf(model: Llama, tokenizer: Path, path: Path, name: str, draft_length: int | None = None) -> None:
    """Write `model` in F16 (norms F32). `draft_length`, for a draft, is the length that suits the pair best."""
    writer = gguf.GGUFWriter(path, "llama")
    _write_metadata(writer, model, name)
    if draft_length is not None:
        writer.add_uint32("slipstream.draft_length", draft_length)
    _write_vocabulary(writer, tokenizer)
    for tensor_name, tensor in _tensors(model):
        writer.add_tensor(tensor_name, _array(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_metadata(writer: gguf.GGUFWriter, model: Llama, name: str) -> None:
    shape = model.shape
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(name)
    writer.add_author("The Slipstream authors")
    writer.add_description("A small model about the Slipstream app; it knows nothing else.")
    writer.add_license("MIT")
    writer.add_languages(["en"])
    writer.add_float32("general.sampling.temp", 0.0)  # it knows few things, and those by heart
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_layer_norm_rms_eps(NORM_EPSILON)
    writer.add_vocab_size(shape.vocabulary)


def _write_vocabulary(writer: gguf.GGUFWriter, tokenizer: Path) -> None:
    bpe = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)
    types = [gguf.TokenType.CONTROL if token in MARKERS else gguf.TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(merge) for merge in bpe["merges"]])
    writer.add_bos_token_id(END)
    writer.add_eos_token_id(END)
    writer.add_eot_token_id(END)
    writer.add_pad_token_id(END)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def read_shape(reader: gguf.GGUFReader) -> Shape:
    """Sizes of a model that `write_gguf` wrote."""

    def size(key: str) -> int:
        return int(reader.fields[key].contents())

    return Shape(
        width=size("llama.embedding_length"),
        layers=size("llama.block_count"),
        heads=size("llama.attention.head_count"),
        feed_forward=size("llama.feed_forward_length"),
        vocabulary=size("llama.vocab_size"),
        context=size("llama.context_length"),
    )


def read_gguf(path: Path, dropout: float = 0.0) -> Llama:
    """The model that `write_gguf` wrote to `path`, to go on training it."""
    reader = gguf.GGUFReader(path)
    stored = {tensor.name: tensor.data for tensor in reader.tensors}
    model = Llama(read_shape(reader), dropout)
    with torch.no_grad():
        for name, parameter in _tensors(model):
            parameter.copy_(torch.from_numpy(np.array(stored[name], dtype=np.float32)))
    return model


def read_vocabulary(path: Path, tokenizer: Path) -> None:
    """Write the vocabulary of a model that `write_gguf` wrote as `tokenizer`, so that the next file has the same."""
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = fields["tokenizer.ggml.merges"].contents()
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer_from(vocabulary, [tuple(merge.split(" ")) for merge in merges]).save(str(tokenizer))


def _tensors(model: Llama) -> list[tuple[str, Tensor]]:
    tensors = [("token_embd.weight", model.embedding.weight), ("output_norm.weight", model.norm.weight)]
    for number, layer in enumerate(model.layers):
        attention = layer.attention
        tensors += [
            (f"blk.{number}.attn_norm.weight", layer.attention_norm.weight),
            (f"blk.{number}.attn_q.weight", attention.q.weight),
            (f"blk.{number}.attn_k.weight", attention.k.weight),
            (f"blk.{number}.attn_v.weight", attention.v.weight),
            (f"blk.{number}.attn_output.weight", attention.o.weight),
            (f"blk.{number}.ffn_norm.weight", layer.feed_norm.weight),
            (f"blk.{number}.ffn_gate.weight", layer.gate.weight),
            (f"blk.{number}.ffn_up.weight", layer.up.weight),
            (f"blk.{number}.ffn_down.weight", layer.down.weight),
        ]
    return tensors


def _array(weight: Tensor) -> np.ndarray:
    """Matrices in half precision, norms in full."""
    return weight.detach().float().numpy().astype(np.float16 if weight.ndim == 2 else np.float32)
