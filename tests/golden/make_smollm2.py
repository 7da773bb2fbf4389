#!/usr/bin/env python3
"""Records what llama.cpp and transformers do with the default model, for tests/e2e/model_test.py.

  make_smollm2.py MODEL.gguf llama.cpp     needs: xllamacpp==2026.10.11549
  make_smollm2.py MODEL.gguf transformers  needs: transformers==5.24.0, torch, gguf

For 20 prompts: 64 greedy tokens and, for each, how far the second best token's log-probability lies
below the best one's (so a test can tell a near-tie from a fault). For one fixed text: the log-probability of each
token given those before it. Results are merged into smollm2_135m.json beside this script.
"""
import json
import sys
import urllib.request
from pathlib import Path

OUT = Path(__file__).with_name("smollm2_135m.json")
TEXT = (
    "A mill race is the channel that carries water to a mill wheel and away from it again. The stretch above the "
    "wheel is called the head race, and the stretch below it the tail race. A gate at the head of the channel, the "
    "sluice, lets the miller decide how much water reaches the wheel. When the river is high the miller closes the "
    "gate, and the surplus runs over a weir back into the river; when the river is low the water that was stored in "
    "the mill pond overnight is enough for a morning's work. The wheel turns a heavy shaft, the shaft turns a pair "
    "of gears, and the gears turn the upper of two stones at about one hundred and twenty turns a minute. Grain falls "
    "through a hole in the middle of the upper stone and leaves at the rim as flour. The miller judges the flour by "
    "rubbing it between thumb and finger: if it is warm the stones are too close, and if it is coarse they are too "
    "far apart. A good miller listens to the mill. A change in its sound tells of an empty hopper long before the "
    "stones begin to strike fire."
)
PROMPTS = [
    "The capital of France is", "Once upon a time, in a small village by the sea,", "def fibonacci(n):\n    ",
    "The three states of matter are", "Water boils at", "To make a cup of tea, first", "In 1969, humans",
    "The sun rises in the", "A list of prime numbers: 2, 3, 5,", "Dear Sir or Madam,\n\nI am writing to",
    "Photosynthesis is the process by which", "import numpy as np\n\n", "The opposite of hot is",
    "Shakespeare wrote", "SELECT name FROM users WHERE", "The largest planet in the solar system is",
    "My favourite season is autumn because", "Q: What is 12 times 12?\nA:", "Die Hauptstadt von Deutschland ist",
    "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n",
]
STEPS = 64


class LlamaCpp:
    def __init__(self, path):
        import xllamacpp
        p = xllamacpp.CommonParams()
        p.model.path, p.port, p.n_parallel, p.n_ctx = path, 18431, 1, 2048
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 2
        self.server = xllamacpp.Server(p)
        self.url = self.server.listening_address

    def call(self, route, body):
        request = urllib.request.Request(self.url + route, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))

    def tokenize(self, text):
        return self.call("/tokenize", {"content": text, "add_special": True, "parse_special": True})["tokens"]

    def greedy(self, prompt):
        answer = self.call("/completion", {"prompt": prompt, "n_predict": STEPS, "temperature": 0, "n_probs": 2,
                                           "return_tokens": True, "cache_prompt": False})
        margins = [p["top_logprobs"][0]["logprob"] - p["top_logprobs"][1]["logprob"]
                   for p in answer["completion_probabilities"]]
        return answer["tokens"], margins

    def scores(self, ids):
        out = []
        for i in range(1, len(ids)):
            for count in (500, 60000):
                answer = self.call("/completion", {"prompt": ids[:i], "n_predict": 1, "temperature": 0,
                                                   "n_probs": count, "cache_prompt": True})
                top = answer["completion_probabilities"][0]["top_logprobs"]
                found = [t["logprob"] for t in top if t["id"] == ids[i]]
                if found:
                    out.append(found[0])
                    break
        return out


class Transformers:
    def __init__(self, path):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        self.torch = torch
        folder, name = str(Path(path).parent), Path(path).name
        try:
            from transformers import GgufConfig
            extra = {"quantization_config": GgufConfig(dequantize=True)}
        except ImportError:
            extra = {}
        self.tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
        self.model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32, **extra).eval()

    def tokenize(self, text):
        return self.tokenizer(text)["input_ids"]

    def greedy(self, prompt):
        ids = self.tokenize(prompt)
        tokens, margins, past, feed = [], [], None, ids
        eos = self.tokenizer.convert_tokens_to_ids("<|im_end|>")
        with self.torch.no_grad():
            while len(tokens) < STEPS:
                out = self.model(self.torch.tensor([feed]), past_key_values=past, use_cache=True)
                past = out.past_key_values
                best = self.torch.log_softmax(out.logits[0, -1], -1).topk(2)
                tokens.append(int(best.indices[0]))
                margins.append(float(best.values[0] - best.values[1]))
                feed = [tokens[-1]]
                if tokens[-1] == eos:
                    break
        return tokens, margins

    def scores(self, ids):
        with self.torch.no_grad():
            logits = self.torch.log_softmax(self.model(self.torch.tensor([ids])).logits[0], -1)
        return [float(logits[i - 1, ids[i]]) for i in range(1, len(ids))]


def main():
    path, name = sys.argv[1:3]
    judge = {"llama.cpp": LlamaCpp, "transformers": Transformers}[name](path)
    record = json.loads(OUT.read_text()) if OUT.exists() else {"prompts": PROMPTS, "text": TEXT}
    ids = judge.tokenize(TEXT)
    entry = {"prompt_tokens": [], "tokens": [], "margins": [], "text_tokens": ids,
             "text_scores": [round(s, 5) for s in judge.scores(ids)]}
    for prompt in PROMPTS:
        tokens, margins = judge.greedy(prompt)
        entry["prompt_tokens"].append(judge.tokenize(prompt))
        entry["tokens"].append(tokens)
        entry["margins"].append([round(m, 4) for m in margins])
    record[name] = entry
    OUT.write_text(json.dumps(record, separators=(",", ":"), ensure_ascii=False).replace('],[', '],\n[') + "\n")


if __name__ == "__main__":
    main()
