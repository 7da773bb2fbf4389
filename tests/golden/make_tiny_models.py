#!/usr/bin/env python3
"""Makes the tiny random checkpoints and the reference logits that the model tests compare with.

Needs torch, transformers, safetensors and gguf. Everything is seeded; run it from any folder:

    python tests/golden/make_tiny_models.py

For every family it writes tests/golden/tiny/<name>/ with config.json, model.safetensors (f32),
golden.json (tokens, length of the prefill, rows, run length) and logits.bin (f32, [rows, vocab],
from one forward pass over all tokens; the script checks that incremental decoding agrees). Three of
them get a GGUF twin, written the way llama.cpp's converter lays tensors out. rope.json holds cosines
and sines of real rotary settings at far positions.
"""

import json
import pathlib

import gguf
import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
TINY = HERE / "tiny"
VOCAB = 256
PREFILL, DECODE = 64, 8
LENGTH = PREFILL + DECODE
ROWS = [0, 7, 15, 16, 31, 33, 47, 62] + list(range(PREFILL - 1, LENGTH))

BASE = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
            rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
            initializer_range=0.15, dtype="float32")
HALF = 8  # rotary dimension / 2 of a head of 16
LONG = dict(short_factor=[1.0 + 0.05 * i for i in range(HALF)],
            long_factor=[1.0 + 0.7 * i for i in range(HALF)])

# name: (config class, changes to BASE, fields replaced in the written config.json)
MODELS = {
    "llama": ("Llama", dict(tie_word_embeddings=False, attention_bias=True, mlp_bias=True), {}),
    "llama-linear": ("Llama", {}, dict(
        rope_theta=10000.0, rope_scaling=dict(type="linear", factor=2.0))),
    "llama-dynamic": ("Llama", dict(max_position_embeddings=32, rope_parameters=dict(
        rope_type="dynamic", rope_theta=10000.0, factor=2.0)), {}),
    "llama-llama3": ("Llama", {}, dict(rope_theta=10000.0, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32))),
    "llama-yarn": ("Llama", dict(rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0,
        original_max_position_embeddings=32)), {}),
    "llama-longrope": ("Llama", dict(rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=32, **LONG)), {}),
    "mistral-window": ("Mistral", dict(tie_word_embeddings=False, sliding_window=20), {}),
    "smollm2": ("Llama", dict(hidden_size=144, num_attention_heads=9,
                              num_key_value_heads=3, rope_parameters=dict(
                                  rope_type="default", rope_theta=100000.0)), {}),
    "qwen2": ("Qwen2", {}, {}),
    "qwen2-window": ("Qwen2", dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=20,
                                   max_window_layers=1), {}),
    "qwen3": ("Qwen3", dict(head_dim=32, attention_bias=False), {}),
}
GGUF_TWINS = {"llama": "llama", "llama-llama3": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.copy_(1.0 + 0.2 * torch.randn(p.shape, generator=generator))
            elif name.endswith("bias"):
                p.copy_(0.3 * torch.randn(p.shape, generator=generator))
            else:
                p.copy_(0.15 * torch.randn(p.shape, generator=generator))


def write_model(name, seed):
    family, changes, replaced = MODELS[name]
    folder = TINY / name
    config = getattr(transformers, family + "Config")(**{**BASE, **changes})
    model = getattr(transformers, family + "ForCausalLM")(config)
    randomise(model, seed)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    path = folder / "config.json"
    written = json.loads(path.read_text())
    for field in ("transformers_version", "use_cache", "initializer_range"):
        written.pop(field, None)
    if replaced:
        written.pop("rope_parameters", None)
        written.update(replaced)
    path.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")


def reference_logits(name, tokens):
    """Logits of one pass over all tokens, by the checkpoint as it was written."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        TINY / name, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.tensor([tokens])
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits[0]
        if "dynamic" not in name and "longrope" not in name:
            step = model(ids[:, :PREFILL], use_cache=True)
            pieces, cache = [step.logits[0]], step.past_key_values
            for i in range(PREFILL, LENGTH):
                step = model(ids[:, i:i + 1], past_key_values=cache, use_cache=True)
                pieces.append(step.logits[0])
            worst = (torch.cat(pieces) - whole).abs().max() / whole.abs().max()
            assert worst < 1e-5, (name, worst)
    return whole.numpy()


def write_golden(name, seed):
    tokens = np.random.default_rng(seed).integers(3, VOCAB, LENGTH).tolist()
    logits = reference_logits(name, tokens)
    golden = dict(tokens=tokens, prefill=PREFILL, rows=ROWS, max_len=LENGTH, vocab=VOCAB)
    (TINY / name / "golden.json").write_text(json.dumps(golden) + "\n")
    logits[ROWS].astype("<f4").tofile(TINY / name / "logits.bin")


def interleave(rows, heads):
    """Half-split rotary rows -> the (2i, 2i + 1) pairs of GGUF's llama architecture."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def gguf_name(name):
    table = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
             "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
             "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    module, suffix = name.rsplit(".", 1)
    if module.startswith("model.layers."):
        _, _, layer, rest = module.split(".", 3)
        return f"blk.{layer}.{table[rest]}.{suffix}"
    return f"{table[module]}.{suffix}"


def llama3_factors(config):
    r, dim = config["rope_scaling"], 16
    out = []
    for i in range(dim // 2):
        wavelength = 2 * np.pi * config["rope_theta"] ** (2 * i / dim)
        low = r["original_max_position_embeddings"] / r["low_freq_factor"]
        high = r["original_max_position_embeddings"] / r["high_freq_factor"]
        smooth = ((r["original_max_position_embeddings"] / wavelength - r["low_freq_factor"]) /
                  (r["high_freq_factor"] - r["low_freq_factor"]))
        out.append(1.0 if wavelength < high else r["factor"] if wavelength > low
                   else 1 / ((1 - smooth) / r["factor"] + smooth))
    return np.array(out, dtype=np.float32)


def write_gguf(name, architecture):
    from safetensors.numpy import load_file
    config = json.loads((TINY / name / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    w = gguf.GGUFWriter(TINY / f"{name}.gguf", architecture)
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_dimension_count(head_dim)
    w.add_rope_freq_base(10000.0)
    w.add_eos_token_id(2)
    if "rope_scaling" in config:
        w.add_rope_scaling_orig_ctx_len(32)
        w.add_tensor("rope_freqs.weight", llama3_factors(config))
    for tensor_name, data in sorted(load_file(TINY / name / "model.safetensors").items()):
        for part, count in (("q_proj", heads), ("k_proj", kv_heads)):
            if architecture == "llama" and part in tensor_name:
                data = interleave(data, count)
        w.add_tensor(gguf_name(tensor_name), np.ascontiguousarray(data))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


ROPE_BASE = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=64,
                 hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1,
                 num_key_value_heads=1, head_dim=64, rms_norm_eps=1e-5, hidden_act="silu")
YARN = dict(rope_type="yarn", rope_theta=1000000.0, factor=4.0,
            original_max_position_embeddings=32768)
FACTORS = dict(short_factor=[1.0 + 0.02 * i for i in range(32)],
               long_factor=[1.0 + 1.9 * i for i in range(32)])
ROPE_CASES = {
    "none": (131072, 131072, dict(rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "llama3": (131072, 131072, dict(rope_theta=500000.0, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192))),
    "yarn old nesting": (32768, 131072, dict(rope_theta=1000000.0, rope_scaling=dict(
        type="yarn", factor=4.0, original_max_position_embeddings=32768))),
    "yarn": (32768, 131072, dict(rope_parameters=YARN)),
    "yarn mscale": (32768, 131072, dict(rope_parameters=dict(YARN, mscale=1.0,
                                                             mscale_all_dim=0.8))),
    "yarn attention_factor": (32768, 131072, dict(rope_parameters=dict(YARN,
                                                                       attention_factor=1.3))),
    "yarn no truncate": (32768, 131072, dict(rope_parameters=dict(YARN, truncate=False))),
    "linear": (4096, 8192, dict(rope_theta=10000.0,
                                rope_scaling=dict(type="linear", factor=2.0))),
    "dynamic": (4096, 8192, dict(rope_theta=10000.0,
                                 rope_scaling=dict(type="dynamic", factor=2.0))),
    "longrope": (131072, 131072, dict(original_max_position_embeddings=4096, rope_theta=10000.0,
                                      rope_scaling=dict(type="longrope", **FACTORS))),
}


def write_rope():
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    positions = [0, 1000, 8192, 60000]
    cases = []
    for name, (declared, derived, fields) in ROPE_CASES.items():
        config = dict(ROPE_BASE, max_position_embeddings=declared, **fields)
        rotary = LlamaRotaryEmbedding(transformers.LlamaConfig(**json.loads(json.dumps(config))))
        cos, sin = rotary(torch.zeros(1), torch.tensor([positions]))
        half = cos.shape[-1] // 2
        cases.append(dict(name=name, config=config, max_positions=derived, positions=positions,
                          cos=[[float(x) for x in row[:half]] for row in cos[0]],
                          sin=[[float(x) for x in row[:half]] for row in sin[0]]))
    lines = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "rope.json").write_text("[\n" + lines + "\n]\n")


def main():
    torch.set_num_threads(1)
    for seed, name in enumerate(MODELS, start=1):
        write_model(name, seed)
        write_golden(name, 100 + seed)
    for name, architecture in GGUF_TWINS.items():
        write_gguf(name, architecture)
    write_rope()


if __name__ == "__main__":
    main()
