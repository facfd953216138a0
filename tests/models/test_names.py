"""What models are called. The table has real files; inner names of those from bug reports were seen in their logs."""

from __future__ import annotations

import json
from pathlib import Path, PureWindowsPath

import pytest

from app.models.names import base_name, model_name

HASH = "dde5aa3fc5ffc17176b5e8bdc82f587b24b2678c6c66101bf7da77af9f7ccdff"
COMMIT = "8f01788085a3ac57ddb617392855d6188514b974"
CACHE = ".cache/huggingface/hub/models--"

REAL = [
    # Repositories of the catalog and its sources, as folders of downloads
    ("unsloth/Qwen3.5-9B-MTP-GGUF/Qwen3.5-9B-UD-Q4_K_XL.gguf", "Qwen3.5-9B", "Qwen3.5-9B"),
    ("unsloth/Qwen3.5-0.8B-GGUF/Qwen3.5-0.8B-Q4_K_M.gguf", "Qwen3.5 0.8B", "Qwen3.5-0.8B"),
    ("unsloth/Qwen3.6-35B-A3B-MTP-GGUF/Qwen3.6-35B-A3B-UD-IQ3_S.gguf", "Qwen3.6-35B-A3B", "Qwen3.6-35B-A3B"),
    ("unsloth/Qwen3.8-27B-GGUF/MTP/mtp-Qwen3.8-27B-Q4_0.gguf", "Qwen3.8 27B", "mtp-Qwen3.8-27B"),
    ("ggml-org/Qwen3.8-27B-GGUF/mmproj-Qwen3.8-27B-Q8_0.gguf", "Qwen3.8 27B", "mmproj-Qwen3.8-27B"),
    ("AtomicChat/Qwen3.5-9B-DFlash-GGUF/Qwen3.5-9B-DFlash.Q8_0.gguf", "", "Qwen3.5-9B-DFlash"),
    ("unsloth/gemma-4-E2B-it-qat-GGUF/gemma-4-E2B-it-qat-UD-Q4_K_XL.gguf", "", "gemma-4-E2B-it-qat"),
    ("google/gemma-4-12B-it-qat-q4_0-gguf/gemma-4-12b-it-qat-q4_0.gguf", "", "gemma-4-12B-it-qat"),
    ("google/gemma-4-E2B-it-qat-q4_0-gguf/gemma-4-E2B_q4_0-it.gguf", "", "gemma-4-E2B-it-qat"),
    ("bartowski/google_gemma-4-31B-it-GGUF/google_gemma-4-31B-it-Q8_0.gguf", "Gemma 4 31B It", "gemma-4-31B-it"),
    ("bartowski/Qwen_Qwen3-0.6B-GGUF/Qwen_Qwen3-0.6B-Q4_K_M.gguf", "Qwen3 0.6B", "Qwen3-0.6B"),
    ("lmstudio-community/gpt-oss-120b-GGUF/gpt-oss-120b-MXFP4-00001-of-00002.gguf", "", "gpt-oss-120b"),
    ("ggml-org/gpt-oss-20b-GGUF/gpt-oss-20b-mxfp4.gguf", "Gpt Oss 20b", "gpt-oss-20b"),
    ("unsloth/gpt-oss-120b-GGUF/UD-Q4_K_XL/gpt-oss-120b-UD-Q4_K_XL-00001-of-00002.gguf", "", "gpt-oss-120b"),
    ("unsloth/DeepSeek-R1-0528-GGUF/DeepSeek-R1-0528-UD-TQ1_0.gguf", "Deepseek-R1-0528", "DeepSeek-R1-0528"),
    (
        "unsloth/Ministral-3-14B-Instruct-2512-GGUF/Ministral-3-14B-Instruct-2512-Q4_K_M.gguf",
        "Ministral-3-14B-Instruct-2512",
        "Ministral-3-14B-Instruct-2512",
    ),
    ("ibm-granite/granite-4.2-8b-GGUF/granite-4.2-8b-Q4_K_M.gguf", "Granite 4.2 8b", "granite-4.2-8b"),
    ("LiquidAI/LFM2.5-8B-A1B-GGUF/LFM2.5-8B-A1B-BF16.gguf", "LFM2.5 8B A1B", "LFM2.5-8B-A1B"),
    (
        "unsloth/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-GGUF/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-UD-Q4_K_M.gguf",
        "Nvidia-Nemotron-3.5-Lightning-30B-A3B",
        "NVIDIA-Nemotron-3.5-Lightning-30B-A3B",
    ),
    ("meta-models/Muse-Glimmer-30B-GGUF/muse-glimmer-30B-kquant-17gb.gguf", "", "Muse-Glimmer-30B"),
    ("unsloth/GLM-4.7-Flash-GGUF/GLM-4.7-Flash-UD-Q4_K_XL.gguf", "Glm-4.7-Flash", "GLM-4.7-Flash"),
    (
        "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
        "Meta Llama 3.1 8B Instruct",
        "Meta-Llama-3.1-8B-Instruct",
    ),
    ("microsoft/Phi-3-mini-4k-instruct-gguf/Phi-3-mini-4k-instruct-q4.gguf", "Phi3", "Phi-3-mini-4k-instruct"),
    ("microsoft/bitnet-b1.58-2B-4T-gguf/ggml-model-i2_s.gguf", "bitnet2b", "bitnet-b1.58-2B-4T"),
    ("mradermacher/Qwen3-8B-abliterated-i1-GGUF/Qwen3-8B-abliterated.i1-Q4_K_M.gguf", "", "Qwen3-8B-abliterated"),
    ("TheBloke/Llama-2-7B-GGUF/llama-2-7b.Q3_K_L.gguf", "LLaMA v2", "Llama-2-7B"),
    # From the registry of Python packages
    ("SmolLM2-135M-Instruct.Q4_1.gguf", "Smollm2 135M 8k Lc100K Mix1 Ep2", "SmolLM2-135M-Instruct"),
    ("gemma-3-270m-q4_k_m.gguf", "Gemma 3 270m", "gemma-3-270m"),
    # Bug reports
    (
        f"{CACHE}a--Llama3-OpenBioLLM-8B-Q4_K_M-GGUF/snapshots/{COMMIT}/llama3-openbiollm-8b-q4_k_m.gguf",
        "Meta Llama 3 8B",
        "Llama3-OpenBioLLM-8B",
    ),
    (f"{CACHE}meta-llama--Meta-Llama-3-8B-Instruct/Llama-3-8B-Instruct-f16.GGUF", COMMIT, "Llama-3-8B-Instruct"),
    ("Qwen2.5-72B-Instruct-GGUF/qwen2.5-72b-instruct-q5_k_m-00001-of-00014.gguf", "", "Qwen2.5-72B-Instruct"),
    ("LLavacheckpoints/llava-v1.6-mistral-7b.Q4_K_M.gguf", "1.6", "llava-v1.6-mistral-7b"),
    ("zai-org_GLM-4.5-Air/glm-4.5-air-q3_K_M.gguf", "Zai org_GLM 4.5 Air", "GLM-4.5-Air"),
    ("MiniCPM-Llama3-V-2_5-gguf/ggml-model-Q4_K_M.gguf", "model", "MiniCPM-Llama3-V-2_5"),
    ("next_ocr/GGUF_Q8/next-ocr-q8_0.gguf", "", "next-ocr"),
    ("jackrong/qwopus3.5-9b-coder-mtp-q8.gguf", "Qwopus3.5 9B Coder", "qwopus3.5-9b-coder-mtp"),
    ("Gemma4-26B-A4B-Uncensored-HauhauCS-Balanced-Q8_K_P.gguf", "", "Gemma4-26B-A4B-Uncensored-HauhauCS-Balanced"),
    ("ggml-org/models/phi-2/ggml-model-q4_0.gguf", "Phi2", "phi-2"),
    # Other apps
    (".cache/llama.cpp/ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M.gguf", "Gemma 3 1b It", "gemma-3-1b-it"),
    ("jan/llamacpp/models/Jan-v1-4B-Q4_K_M/model.gguf", "Jan v1 4B", "Jan-v1-4B"),
]
"""Path, the name inside where it is known, and the name on the hub."""
NOT_YET = {"google/gemma-4-E2B-it-qat-q4_0-gguf/gemma-4-E2B_q4_0-it.gguf"}
"""Its file doesn't say that it is the QAT version."""


@pytest.mark.parametrize(("path", "inner", "name"), REAL)
def test_files_are_called_as_on_the_hub(path: str, inner: str, name: str) -> None:
    assert (model_name(path, inner) == name) == (path not in NOT_YET)
    assert model_name(Path("models", path), inner) == model_name(path, inner)
    assert model_name(PureWindowsPath("C:\\", *path.split("/")), inner) == model_name(path, inner)


def test_how_many_are() -> None:
    assert len(REAL) == 40 and len(NOT_YET) <= 2


@pytest.mark.parametrize(
    ("path", "inner", "name"),
    [
        ("home/anna1/model.gguf", "Qwen3 4B", "Qwen3 4B"),  # a folder that isn't the model's
        ("models0/target.gguf", "", "target"),
        ("Qwen3-4B/Q8_0/model.gguf", "snapshots", "Qwen3-4B"),
        ("Qwen3-4B-GGUF/Q4_K_M.gguf", "", "Qwen3-4B"),
        ("Qwen3-4B-Q4_K_M (1).gguf", "", "Qwen3-4B"),
        ("nvidia_Llama-3_3-Nemotron-49B-v1-Q4_K_M.gguf", "Llama 3_3 Nemotron 49B v1", "Llama-3_3-Nemotron-49B-v1"),
        ("my_finetune-7b-f16.gguf", "My Finetune 7b", "my_finetune-7b"),
        ("my_model.gguf", "", "my_model"),
        (f"models--unsloth--Qwen3-4B-GGUF/blobs/{HASH}", "", "Qwen3-4B"),
        (f"blobs/sha256-{HASH}", "Llama 3.2 3B Instruct", "Llama 3.2 3B Instruct"),  # without its manifest
        ("guide/guide-target.gguf", "Slipstream Guide 17M", "Slipstream Guide 17M"),
        (".gguf", "", ".gguf"),
    ],
)
def test_where_the_name_comes_from(path: str, inner: str, name: str) -> None:
    assert model_name(path, inner) == name


def test_a_repository_that_is_known_names_a_file_that_does_not() -> None:
    assert model_name("x/model.gguf", "Hf Model", "unsloth/Qwen3-4B-GGUF") == "Qwen3-4B"
    assert model_name("x/qwen3-4b-q8_0.gguf", "", "Qwen/Qwen3-4B-GGUF") == "Qwen3-4B"


@pytest.mark.parametrize(
    ("manifest", "name"),
    [
        ("registry.ollama.ai/library/llama3.2/3b", "llama3.2:3b"),
        ("registry.ollama.ai/anna/mario/latest", "anna/mario:latest"),
        ("hf.co/unsloth/Qwen3-4B-GGUF/Q4_K_M", "Qwen3-4B"),
    ],
)
def test_a_blob_has_the_name_of_its_manifest(tmp_path: Path, manifest: str, name: str) -> None:
    blob, file = tmp_path / "blobs" / f"sha256-{HASH}", tmp_path / "manifests" / manifest
    file.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{HASH}"}
    file.write_text(json.dumps({"layers": [layer]}))
    assert model_name(blob, "Llama 3.2 3B Instruct") == name
    assert model_name(blob.with_name("sha256-" + "0" * 64), "Llama 3.2") == "Llama 3.2"
    file.write_text("[]")
    assert model_name(blob, "Llama 3.2 3B Instruct") == "Llama 3.2 3B Instruct"


def test_what_identifies_a_model() -> None:
    names = ["Qwen3.5-9B-UD-Q4_K_XL.gguf", "unsloth/Qwen3.5-9B-GGUF", "qwen3.5 9B", "Qwen3.5-9B.i1-Q4_K_M.gguf"]
    assert set(map(base_name, names)) == {"qwen3.59b"}
