"""vllm_checkpoint.py SOURCE.gguf FOLDER bf16|w8a8: a checkpoint that vLLM loads, for speed (rounded, not calibrated)."""
import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

source, folder, kind = sys.argv[1:4]
place = {"pretrained_model_name_or_path": os.path.dirname(source), "gguf_file": os.path.basename(source)}
model = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.bfloat16,
                                             quantization_config=GgufConfig(dequantize=True))
model.save_pretrained(folder, max_shard_size="100GB")
AutoTokenizer.from_pretrained(**place).save_pretrained(folder)
if kind == "w8a8":
    tensors = {}
    for name, weight in load_file(f"{folder}/model.safetensors").items():
        if name.endswith("_proj.weight"):
            scale = weight.float().abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
            tensors[name] = (weight.float() / scale).round().to(torch.int8)
            tensors[f"{name}_scale"] = scale.to(torch.bfloat16)
        else:
            tensors[name] = weight
    save_file(tensors, f"{folder}/model.safetensors", metadata={"format": "pt"})
    integers = {"num_bits": 8, "type": "int", "symmetric": True}
    config = json.load(open(f"{folder}/config.json"))
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"],
                                      "weights": {**integers, "strategy": "channel", "dynamic": False},
                                      "input_activations": {**integers, "strategy": "token", "dynamic": True}}}}
    json.dump(config, open(f"{folder}/config.json", "w"), indent=1)
