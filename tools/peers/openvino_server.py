"""openvino_server.py MODEL.gguf PORT [--slots N] [--threads N] [--prefix-cache]

The thinnest HTTP around OpenVINO GenAI's ContinuousBatchingPipeline, so that the load generator of the other peers can
drive it: POST /v1/completions with a prompt of token ids, greedy, streamed, always to max_tokens. It does not
detokenise (a token's text is its id), which flatters OpenVINO a little. One thread steps the pipeline, one writes.
"""
import argparse
import asyncio
import json
import queue
import threading

import numpy as np
import openvino
import openvino_genai


class Engine(threading.Thread):
    """Owns the pipeline. Requests come through a queue; each step's tokens leave in one call into the event loop."""

    def __init__(self, options):
        super().__init__(daemon=True)
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 3                       # GiB
        scheduler.max_num_batched_tokens = 256
        scheduler.max_num_seqs = max(options.slots, 1)
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = options.prefix_cache
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            options.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": options.threads})
        self.inbox = queue.SimpleQueue()
        self.loop = asyncio.get_running_loop()

    def run(self):
        live, number = [], 0
        while True:
            while not live or not self.inbox.empty():
                prompt, length, tokens = self.inbox.get()
                number += 1
                config = openvino_genai.GenerationConfig()
                config.ignore_eos, config.do_sample = True, False
                config.max_new_tokens = config.min_new_tokens = length
                handle = self.pipeline.add_request(number, openvino.Tensor(np.array([prompt], np.int64)), config)
                live.append((handle, length, tokens))
            self.pipeline.step()
            events, going_on = [], []
            for handle, left, tokens in live:
                while left > 0 and handle.can_read():
                    ids = [i for output in handle.read().values() for i in output.generated_ids]
                    left -= len(ids)
                    events.append((tokens, ids))
                if left > 0:
                    going_on.append((handle, left, tokens))
            live = going_on
            self.loop.call_soon_threadsafe(self.deliver, events)

    @staticmethod
    def deliver(events):
        for tokens, ids in events:
            tokens.put_nowait(ids)


async def answer(engine, reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            if not head.startswith("post /v1/completions"):
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length:"))
            request = json.loads(await reader.readexactly(length))
            prompt, wanted, tokens = request["prompt"], request["max_tokens"], asyncio.Queue()
            engine.inbox.put((prompt, wanted, tokens))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            sent = 0
            while sent < wanted:
                ids = await tokens.get()
                sent += len(ids)
                reason = '"length"' if sent >= wanted else "null"
                text = "".join(f" {i}" for i in ids)
                event(writer, '{"object":"text_completion","choices":[{"index":0,"text":"%s","finish_reason":%s}]}'
                      % (text, reason))
            event(writer, '{"object":"text_completion","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,'
                  '"total_tokens":%d}}' % (len(prompt), sent, len(prompt) + sent))
            event(writer, "[DONE]")
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def event(writer, data):
    writer.write(b"%x\r\ndata: %s\n\n\r\n" % (len(data) + 8, data.encode()))


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("port", type=int)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefix-cache", action="store_true")
    options = parser.parse_args()
    engine = Engine(options)
    engine.start()
    server = await asyncio.start_server(lambda r, w: answer(engine, r, w), "127.0.0.1", options.port, limit=1 << 24)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
