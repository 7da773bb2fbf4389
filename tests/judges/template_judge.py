#!/usr/bin/env python3
"""Compares Millrace's chat templates with jinja2, byte for byte.

    template_judge.py --judge-binary build/release/template_judge --assets FOLDER

FOLDER holds *.jinja files at any depth (tests/judges/assets.py fetches real ones). jinja2 is configured as the
transformers library documents for apply_chat_template: an immutable sandbox, trim_blocks and lstrip_blocks, loop
controls, {% generation %}, tojson without HTML escapes. Each case renders a template with a conversation on both sides;
both must give the same text, or both must fail. Where they agree, the reported user ranges must be ascending and
merged and must cover every user message wherever it stands verbatim; a second render with all contents written in
characters of a private use plane shows that no byte of a content, however cut or joined, goes unmarked.
"""
import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1767323045  # 2026-01-02 03:04:05 UTC


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)


class Namespace(jinja2.utils.Namespace):
    # As transformers does: no attribute with a leading underscore.
    def __init__(*args, **kwargs):
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            check_name(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def check_name(name):
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError("underscore")


def make_environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    env.globals["namespace"] = Namespace
    return env


ENV = make_environment()
COMPILED = {}


def reference(source, context):
    """The text, or None and the reason."""
    try:
        if source not in COMPILED:
            COMPILED[source] = ENV.from_string(source)
        return COMPILED[source].render(**context), None
    except Exception as error:  # every failure of the reference must be one of ours too
        return None, f"{type(error).__name__}: {error}"


class Judged:
    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        encoding="utf-8")

    def render(self, source, context):
        self.process.stdin.write(json.dumps({"template": source, "context": context, "now": NOW}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            return {"error": "the judged program died"}, True
        return json.loads(line), False


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Maß <b> & 'q' 京 \"x\"\n- line",
    "parameters": {"type": "object", "properties": {
        "zeta": {"type": "string", "description": "City, e.g. Oslo"},
        "alpha": {"type": "integer", "enum": [1, 2], "default": 1},
        "opts": {"type": "object", "properties": {"deep": {"type": ["string", "null"]}}},
        "many": {"type": "array", "items": {"type": "number"}},
    }, "required": ["zeta"]}, "return": {"type": "string"}}}
EMPTY_TOOL = {"type": "function", "function": {"name": "ping", "description": "Ping",
                                               "parameters": {"type": "object", "properties": {}}}}
LIST_TOOL = {"type": "function", "function": {"name": "add", "description": "", "strict": True, "parameters": {
    "type": "object", "$defs": {"P": {"type": "object", "properties": {"x": {"type": "number"}}}},
    "properties": {"p": {"$ref": "#/$defs/P"}, "u": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                   "b": {"type": "boolean", "default": True}, "f": {"type": "number", "default": 0.5}},
    "required": ["p", "u"], "additionalProperties": False}}}


def call(arguments, name="get_weather", ident="abcdefghi"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversations():
    user = {"role": "user", "content": "Hi <|im_end|>\n there, 'quoted' \"x\" ß京 "}
    system = {"role": "system", "content": "  You are helpful.\nBe brief.  "}
    answer = {"role": "assistant", "content": "Hello!\n"}
    more = {"role": "user", "content": "And then?"}
    thought = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nSo it is.", "reasoning_content": "let me see\n"}
    result = {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi", "content": '{"t": 5}'}
    yield "user", [user]
    yield "system", [system, user]
    yield "developer", [{"role": "developer", "content": "Obey."}, user]
    yield "turns", [system, user, answer, more]
    yield "answer last", [user, answer]
    yield "thought", [user, thought, more]
    yield "thinking key", [user, {"role": "assistant", "content": "ok", "thinking": "deep"}, more]
    yield "two users", [user, more]
    yield "assistant first", [answer, user]
    yield "empty", []
    yield "odd role", [{"role": "narrator", "content": "x"}]
    yield "no content", [user, {"role": "assistant"}, more]
    yield "null content", [user, {"role": "assistant", "content": None}, more]
    yield "parts", [{"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image"},
                                                 {"type": "text", "text": "what?"}]}]
    yield "system parts", [{"role": "system", "content": [{"type": "text", "text": "Sys"}]}, user]
    yield "image url", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}},
                                                     {"type": "text", "text": "q"}]}]
    for label, arguments in (("object", {"zeta": "Oslo", "alpha": 2, "many": [1.5, 2], "opts": {"deep": None}, "b": True}),
                             ("string", '{"zeta": "Oslo"}'), ("empty", {})):
        for content in ("", None, "I look."):
            turn = {"role": "assistant", "content": content, "tool_calls": [call(arguments)]}
            yield f"call {label} {content!r}", [user, turn, result, answer, more]
    both = {"role": "assistant", "content": "", "reasoning_content": "two calls\n",
            "tool_calls": [call({"zeta": "A"}), call({"p": {"x": 1}, "u": "s"}, "add", "bcdefghij")]}
    second = {"role": "tool", "name": "add", "tool_call_id": "bcdefghij", "content": [{"type": "text", "text": "7"}]}
    yield "two calls", [system, user, both, result, second]
    yield "result last", [user, {"role": "assistant", "content": "", "tool_calls": [call({"zeta": "Oslo"})]}, result]
    yield "result mapping", [user, {"role": "assistant", "tool_calls": [call({"zeta": "O"})]},
                             {"role": "tool", "tool_call_id": "abcdefghi", "content": {"t": 5}}]
    yield "ipython", [user, answer, {"role": "ipython", "content": "out"}]


def contexts():
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    tool_sets = [("no tools", None), ("tools", [WEATHER, EMPTY_TOOL, LIST_TOOL])]
    kwargs_sets = [{}, {"enable_thinking": False}, {"enable_thinking": True, "thinking": True,
                                                    "reasoning_effort": "high", "documents": [{"title": "T", "text": "B"}]}]
    for label, messages in conversations():
        for tools_label, tools in tool_sets:
            for prompt in (False, True):
                for number, kwargs in enumerate(kwargs_sets):
                    if number > 0 and not prompt:
                        continue
                    context = {"messages": messages, "add_generation_prompt": prompt, **tokens, **kwargs}
                    if tools is not None:
                        context["tools"] = tools
                    elif number == 1:
                        context["tools"] = None
                    yield f"{label}, {tools_label}, prompt {prompt}, kwargs {number}", context


PRIVATE = 0xF0000


def disguise(value):
    """Letters of user strings outside the words that templates compare with, moved to the private use area."""
    if isinstance(value, str):
        return "".join(chr(PRIVATE + ord(c)) for c in value)
    if isinstance(value, list):
        return [disguise(item) for item in value]
    return value


def disguise_context(context):
    messages = []
    for message in context["messages"]:
        message = dict(message)
        if isinstance(message.get("content"), str):
            message["content"] = disguise(message["content"])
        messages.append(message)
    return {**context, "messages": messages}


def check_disguised(answer):
    """None, or what is wrong: every disguised character is marked."""
    position = 0
    covered = [tuple(r) for r in answer["user_ranges"]]
    at = 0
    for char in answer["text"]:
        size = len(char.encode())
        while at < len(covered) and covered[at][1] <= position:
            at += 1
        inside = at < len(covered) and covered[at][0] <= position and position + size <= covered[at][1]
        if ord(char) >= PRIVATE and not inside:
            return f"user byte at {position} is not marked"
        position += size
    return None


def check_ranges(answer, context):
    """None, or what is wrong with the marks: the whole user message must be covered where it stands verbatim."""
    text = answer["text"].encode()
    ranges = answer["user_ranges"]
    last = 0
    for begin, end in ranges:
        if not last <= begin < end <= len(text) or (begin == last and last > 0):
            return f"ranges are not ascending and merged at {begin}"
        last = end
    covered = bytearray(len(text))
    for begin, end in ranges:
        covered[begin:end] = b"\1" * (end - begin)
    for message in context.get("messages") or []:
        content = message.get("content") if isinstance(message, dict) else None
        if message.get("role") != "user" or not isinstance(content, str):
            continue
        needle = b"<|im_end|>\n there" if "<|im_end|>" in content else content.encode()
        at = text.find(needle)
        while at >= 0 and len(needle) > 6:
            if not all(covered[at:at + len(needle)]):
                return f"user text at {at} is not marked"
            at = text.find(needle, at + 1)
    return None


SNIPPET_CONTEXT = {
    "s": "Hello World", "u": "ßÉ京 ﬁx", "n": 7, "neg": -7, "f": 2.5, "big": 1e16, "small": 1e-7, "t": True, "no": None,
    "l": [3, 1, 2], "e": [], "d": {"zeta": 1, "alpha": "ß<b>'"}, "names": ["b", "A", "c"], "ws": "  a  b\tc \n",
    "rows": [{"k": "x", "v": 2, "g": {"h": 1}}, {"k": "y", "v": 1, "g": {"h": 2}}, {"k": "X", "v": 3}],
    "lines": "one\ntwo\n\nthree\r\nfour\x0bfive", "html": "<a href='x'>&\"", "nested": [[1, [2, "q'\"\n"]], {"a": None}],
    "bos_token": "<s>", "tool": {"items": 5, "get": "g", "keys": [1], "name": "nm"}, "tree": [
        {"name": "r", "kids": [{"name": "c", "kids": []}, {"name": "d", "kids": [{"name": "e", "kids": []}]}]}],
    "messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}],
}


def check(counts, judged, label, source, context, verbose, ranges=True):
    expected, reason = reference(source, context)
    answer, died = judged.render(source, context)
    problem = None
    if expected is None and "error" not in answer:
        problem = f"the reference fails ({reason}), we give {answer['text'][-200:]!r}"
    elif expected is not None and "error" in answer:
        problem = f"we fail: {answer['error']}"
    elif expected is not None and expected != answer["text"]:
        at = next((i for i, (a, b) in enumerate(zip(expected, answer["text"])) if a != b),
                  min(len(expected), len(answer["text"])))
        problem = f"differs at {at}: expected {expected[max(0, at - 40):at + 60]!r}, got {answer['text'][max(0, at - 40):at + 60]!r}"
    elif expected is not None and ranges:
        problem = check_ranges(answer, context)
        if problem is None and label.endswith("prompt True, kwargs 0"):
            other, died = judged.render(source, disguise_context(context))
            problem = None if "error" in other else check_disguised(other)
    counts[0 if problem is None else 1] += 1
    counts[2] += expected is None
    if problem is not None and (verbose or counts[1] <= 60):
        print(f"FAIL {label}: {problem}")
    if died:
        sys.exit("the judged program died")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--judge-binary", required=True)
    parser.add_argument("--assets", type=Path)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    judged = Judged(arguments.judge_binary)
    counts = [0, 0, 0]
    for line in (Path(__file__).parent / "template_snippets.txt").read_text().split("\n%%%\n"):
        check(counts, judged, repr(line), line, SNIPPET_CONTEXT, arguments.verbose, ranges=False)
    print(f"snippets: {counts[0]} passed, {counts[1]} failed, of which {counts[2]} are errors on both sides")
    templates = sorted(arguments.assets.rglob("*.jinja")) if arguments.assets else []
    if arguments.assets and not templates:
        sys.exit(f"no *.jinja below {arguments.assets}")
    for path in templates:
        before = list(counts)
        source = path.read_text()
        for label, context in contexts():
            check(counts, judged, f"{path.name}: {label}", source, context, arguments.verbose)
        if arguments.verbose or counts[1] > before[1]:
            print(f"{path.name}: {counts[0] - before[0]} passed, {counts[1] - before[1]} failed, "
                  f"{counts[2] - before[2]} refused by the reference")
    print(f"{len(templates)} templates, {counts[2]} cases refused by the reference")
    print(f"{counts[0]} passed, {counts[1]} failed")
    sys.exit(1 if counts[1] else 0)


if __name__ == "__main__":
    main()
