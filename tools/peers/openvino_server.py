"""openvino_server.py MODEL.gguf PORT [--threads N] [--prefix-cache]

The thinnest HTTP around OpenVINO GenAI's ContinuousBatchingPipeline, so that the load generator of the other peers can
drive it: POST /v1/completions with a prompt of token ids, greedy, streamed, always to max_tokens. It does not
detokenise (a token's text is its id), which flatters OpenVINO a little.
"""
import argparse
import asyncio
import json

import numpy as np
import openvino
import openvino_genai


class Engine:
    """Steps the pipeline between turns of the event loop. A thread for it would starve the loop: step() keeps the
    interpreter's lock, and tokens then leave in bursts of many steps."""

    def __init__(self, options):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 3                       # GiB
        scheduler.max_num_batched_tokens = 256
        scheduler.max_num_seqs = 64
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = options.prefix_cache
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            options.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": options.threads})
        self.live, self.number, self.work = {}, 0, asyncio.Event()      # live: handle by the queue of its tokens

    def add(self, prompt, length):
        """Starts a request; returns the queue that its token ids come through, some at a time, and None at the end."""
        config = openvino_genai.GenerationConfig()
        config.ignore_eos, config.do_sample = True, False
        config.max_new_tokens = config.min_new_tokens = length
        self.number += 1
        tokens = asyncio.Queue()
        self.live[tokens] = self.pipeline.add_request(self.number, openvino.Tensor(np.array([prompt], np.int64)), config)
        self.work.set()
        return tokens

    async def run(self):
        while True:
            await self.work.wait()
            self.pipeline.step()
            for tokens, handle in list(self.live.items()):
                while handle.can_read():
                    tokens.put_nowait([i for output in handle.read().values() for i in output.generated_ids])
                if handle.get_status() != openvino_genai.GenerationStatus.RUNNING:
                    tokens.put_nowait(None)
                    del self.live[tokens]
            if not self.live:
                self.work.clear()
            for _ in range(5):                         # send, accept, read and add what has come meanwhile
                await asyncio.sleep(0)


async def answer(engine, reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            if not head.startswith("post /v1/completions"):
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length:"))
            request = json.loads(await reader.readexactly(length))
            prompt, sent = request["prompt"], 0
            tokens = engine.add(prompt, request["max_tokens"])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            while (ids := await tokens.get()) is not None:
                sent += len(ids)
                text = "".join(f" {i}" for i in ids)
                reason = '"length"' if sent >= request["max_tokens"] else "null"
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
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefix-cache", action="store_true")
    options = parser.parse_args()
    engine = Engine(options)
    server = await asyncio.start_server(lambda r, w: answer(engine, r, w), "127.0.0.1", options.port, limit=1 << 24)
    async with server:
        await engine.run()


if __name__ == "__main__":
    asyncio.run(main())
