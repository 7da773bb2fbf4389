"""random_gguf.py SOURCE.gguf OUT.gguf: a llama of TinyLlama-1.1B's shape with random bfloat16 weights and the
vocabulary of SOURCE. The output matrix is its own, as in TinyLlama. Tensors are written one at a time."""
import sys

import gguf
import numpy as np

HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, CONTEXT = 2048, 5632, 22, 32, 4, 4096


def tensors(vocab):
    """(name, shape) in rows × columns; one dimension is a norm."""
    kv = HIDDEN // HEADS * KV_HEADS
    yield "token_embd", (vocab, HIDDEN)
    for i in range(LAYERS):
        for name, shape in {"attn_norm": (HIDDEN,), "attn_q": (HIDDEN, HIDDEN), "attn_k": (kv, HIDDEN),
                            "attn_v": (kv, HIDDEN), "attn_output": (HIDDEN, HIDDEN), "ffn_norm": (HIDDEN,),
                            "ffn_gate": (FFN, HIDDEN), "ffn_up": (FFN, HIDDEN), "ffn_down": (HIDDEN, FFN)}.items():
            yield f"blk.{i}.{name}", shape
    yield "output_norm", (HIDDEN,)
    yield "output", (vocab, HIDDEN)


def main():
    fields = gguf.GGUFReader(sys.argv[1]).fields
    out = gguf.GGUFWriter(sys.argv[2], "llama")
    vocab = len(fields["tokenizer.ggml.tokens"].data)
    out.add_name("random-1b")
    out.add_block_count(LAYERS)
    out.add_context_length(CONTEXT)
    out.add_embedding_length(HIDDEN)
    out.add_feed_forward_length(FFN)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_freq_base(10000.0)
    out.add_rope_dimension_count(HIDDEN // HEADS)
    out.add_vocab_size(vocab)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for key, field in fields.items():
        if key.startswith("tokenizer."):
            if field.types[0] == gguf.GGUFValueType.ARRAY:
                out.add_array(key, field.contents())
            else:
                out.add_key_value(key, field.contents(), field.types[0])

    bf16 = gguf.GGMLQuantizationType.BF16
    for name, shape in tensors(vocab):
        if len(shape) == 1:
            out.add_tensor_info(f"{name}.weight", shape, np.dtype(np.float32), 4 * shape[0])
        else:   # raw bytes: gguf derives the shape in values from the shape in bytes
            stored = shape[0], 2 * shape[1]
            out.add_tensor_info(f"{name}.weight", stored, np.dtype(np.uint8), stored[0] * stored[1], bf16)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_ti_data_to_file()
    random = np.random.default_rng(0)
    for _, shape in tensors(vocab):
        if len(shape) == 1:
            out.write_tensor_data(np.ones(shape, np.float32))
        else:
            out.write_tensor_data(gguf.quants.quantize(random.standard_normal(shape, np.float32) * 0.02, bf16))
    out.close()


if __name__ == "__main__":
    main()
