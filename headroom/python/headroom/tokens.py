"""`python -m headroom.tokens`: texts as the numbers that `headroom train dataset=tokens` reads.

Writes train.bin, train.bin.json and, if a model shall not learn all of the tokens, train.mask.bin
(headroom/data/token_file.h says what is in them). Needs the package `tokenizers`; conversations need
`transformers`. Imports no torch. Memory holds about a megabyte of text at a time, or the longest
document, with some 150 bytes for each of its bytes.
"""
from __future__ import annotations

import argparse
import array
import contextlib
import difflib
import errno
import hashlib
import json
import os
import signal
import sys
import time
from typing import IO, Iterable, Iterator, NoReturn, Optional

from headroom.documents import Line, Tokenizer, document_of, lines_of
from headroom.errors import Error, InputError, UsageError, WriteError

# The exit codes of the command line (docs/reference/exit-codes.md).
OK, USAGE, BAD_INPUT, UNAVAILABLE, CANNOT_WRITE, INTERRUPTED = 0, 64, 65, 69, 73, 130

EXAMPLES = """
a line of FILE is a JSON object with one of
  {"text": ...}                                  a text; all of it is learned
  {"prompt": ..., "completion": ...}             the completion is learned
  {"instruction": ..., "input": ..., "output": ...}    likewise the output, in Alpaca's words
  {"messages": [{"role": ..., "content": ...}]}  a conversation in the tokenizer's chat template;
                                                 what the assistant says is learned

examples:
  python -m headroom.tokens books.jsonl --tokenizer models/gpt2 --out data/train.bin
  python -m headroom.tokens chats.jsonl --tokenizer models/qwen --out data/train.bin --val-share 0.01
  zcat web.jsonl.gz | python -m headroom.tokens - --tokenizer models/gpt2 --out data/train.bin --text-key body
"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (python -m headroom.tokens --help)")


def share(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a share between 0 and 1, received '{text}'; try 0.01")
    return value


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m headroom.tokens", allow_abbrev=False, epilog=EXAMPLES,
                    description="Turns texts into the tokens that `headroom train dataset=tokens` reads.",
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="lines of JSON, a document each; - is standard input")
    parser.add_argument("--tokenizer", metavar="DIR", required=True,
                        help="a model's folder, with tokenizer.json and tokenizer_config.json")
    parser.add_argument("--out", metavar="FILE.bin", required=True, help="the file of tokens, such as train.bin")
    parser.add_argument("--text-key", metavar="KEY", help="the key of the text, the only one that is looked at")
    parser.add_argument("--document-end", metavar="TOKEN",
                        help="the token behind each document; by default the tokenizer's eos_token")
    parser.add_argument("--no-mask", action="store_true", help="learn prompts and questions, too")
    parser.add_argument("--val-share", metavar="SHARE", type=share,
                        help="the share of the documents that go to val.bin beside FILE.bin, such as 0.01; "
                             "equal documents go to the same file")
    known = [option for action in parser._actions for option in action.option_strings]
    options, rest = parser.parse_known_args(arguments)
    if rest:
        near = difflib.get_close_matches(rest[0], known, 1)
        parser.error(f"unknown argument '{rest[0]}'" + (f"; did you mean '{near[0]}'?" if near else ""))
    if not options.out.endswith(".bin"):
        parser.error(f"--out: expected a name that ends in .bin, received '{options.out}'; try "
                     f"{os.path.join(options.out, 'train.bin')}")
    if options.val_share and os.path.basename(options.out) == "val.bin":
        parser.error("--val-share: expected another --out than val.bin; try train.bin")
    return options


# ---- The files

@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror}" +
                         ("; free some space" if error.errno == errno.ENOSPC else "")) from None


class Output:
    """A file that takes its name when all of it is on the disk, as base/output_file.h does."""

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)
        self._temporary = f"{self.path}.{os.getpid()}.tmp"
        with writing(self.path):
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            self._file: IO[bytes] = open(self._temporary, "xb")

    def write(self, content: bytes) -> None:
        with writing(self.path):
            self._file.write(content)

    def sync(self) -> None:
        with writing(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def commit(self) -> None:
        with writing(self.path):
            os.replace(self._temporary, self.path)

    def discard(self) -> None:
        """Removes what was not committed."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


class Part:
    """The files of one part of the documents: train.bin, train.bin.json and perhaps train.mask.bin."""

    def __init__(self, path: str, tokenizer: Tokenizer, source: str, stack: contextlib.ExitStack) -> None:
        self.path = path
        self._tokenizer, self._source, self._stack = tokenizer, source, stack
        self._dtype, self._code = ("uint16", "H") if tokenizer.vocab_size <= 1 << 16 else ("uint32", "I")
        self.tokens = self.masked = self.documents = 0
        self._mask: Optional[Output] = None
        self._tokens = self._output(path)

    @property
    def _mask_path(self) -> str:
        return self.path[:-len(".bin")] + ".mask.bin"

    def _output(self, path: str) -> Output:
        made = Output(path)
        self._stack.callback(made.discard)
        return made

    def add(self, ids: list[int], mask: Optional[bytes]) -> None:
        if mask is not None and 0 in mask and self._mask is None:
            self._mask = self._output(self._mask_path)
            for at in range(0, self.tokens, 1 << 20):
                self._mask.write(b"\1" * min(1 << 20, self.tokens - at))
        numbers = array.array(self._code, ids)
        if sys.byteorder == "big":
            numbers.byteswap()
        self._tokens.write(numbers.tobytes())
        if self._mask is not None:
            self._mask.write(mask or b"\1" * len(ids))
        self.tokens += len(ids)
        self.masked += mask.count(0) if mask else 0
        self.documents += 1

    def finish(self) -> list[Output]:
        """The files on the disk, to be committed."""
        description = {"schema": 1, "dtype": self._dtype, "tokens": self.tokens,
                       "vocab_size": self._tokenizer.vocab_size,
                       "document_end": self._tokenizer.document_end, "documents": self.documents,
                       **({} if self._tokenizer.mask_token is None else
                          {"mask_token_id": self._tokenizer.mask_token}),
                       "masked": self.masked, "source": self._source, "tokenizer": self._tokenizer.folder}
        document = self._output(self.path + ".json")
        document.write(json.dumps(description).encode() + b"\n")
        outputs = [document, *([self._mask] if self._mask else []), self._tokens]
        for one in outputs:
            one.sync()
        return outputs

    def remove_old_mask(self) -> None:
        """That of an earlier file of this name, which had one."""
        if self._mask is None:
            with writing(self._mask_path), contextlib.suppress(FileNotFoundError):
                os.unlink(self._mask_path)

    def describe(self) -> str:
        masked = f", {self.masked / self.tokens:.0%} of them masked" if self.masked else ""
        documents = f"{self.documents:,} document{'' if self.documents == 1 else 's'}"
        return f"{self.path}: {self.tokens:,} tokens ({self._dtype}) of {documents}{masked}"


# ---- The work

class Progress:
    """A line that changes on a terminal; elsewhere a line every ten seconds."""

    def __init__(self, total_bytes: Optional[int]) -> None:
        self._total = total_bytes
        self._terminal = sys.stderr.isatty()
        self._began = self._last = time.monotonic()

    def show(self, read_bytes: int, tokens: int) -> None:
        now = time.monotonic()
        if now - self._last < (0.2 if self._terminal else 10):
            return
        self._last = now
        took = now - self._began
        text = f"{tokens:,} tokens, {tokens / took:,.0f}/s"
        if self._total and read_bytes:
            left = took * max(0, self._total - read_bytes) / read_bytes
            text = f"{min(1, read_bytes / self._total):.0%}, {text}, {left:,.0f} s left"
        print(f"\r\033[K{text}" if self._terminal else f"headroom.tokens: {text}", file=sys.stderr, flush=True,
              end="" if self._terminal else "\n")

    def end(self) -> None:
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def batches(lines: Iterable[Line], documents: int = 1024, size: int = 1 << 20) -> Iterator[list[Line]]:
    """So many lines, or so many bytes, that the threads of the tokenizer have work and memory suffices."""
    batch: list[Line] = []
    left = size
    for line in lines:
        batch.append(line)
        left -= len(line.content)
        if len(batch) == documents or left <= 0:
            yield batch
            batch, left = [], size
    if batch:
        yield batch


def is_for_validation(line: Line, val_share: float) -> bool:
    digest = hashlib.blake2b(line.content.strip(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < val_share * 2**64


def opened(name: str) -> IO[bytes]:
    if name == "-":
        return sys.stdin.buffer
    try:
        return open(name, "rb")
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from None


def write(options: argparse.Namespace) -> list[Part]:
    """Writes all files, or none. Returns what they contain."""
    tokenizer = Tokenizer(options.tokenizer, options.document_end)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(opened(options.file))
        train = Part(options.out, tokenizer, options.file, stack)
        val = Part(os.path.join(os.path.dirname(options.out), "val.bin"), tokenizer, options.file, stack) \
            if options.val_share else None
        progress = Progress(os.fstat(file.fileno()).st_size or None)
        stack.callback(progress.end)
        read = 0
        for batch in batches(lines_of(options.file, file)):
            documents = [document_of(line, options.text_key, tokenizer, not options.no_mask)
                         for line in batch]
            for line, document, (ids, mask) in zip(batch, documents, tokenizer.encode(documents)):
                read += len(line.content)
                if document.text:
                    part = val if val and is_for_validation(line, options.val_share) else train
                    part.add(ids, mask)
            progress.show(read, train.tokens + (val.tokens if val else 0))
        parts = [train, *([val] if val else [])]
        check(parts, options)
        outputs = [output for part in parts for output in part.finish()]
        for ending in (signal.SIGINT, signal.SIGTERM):  # all files, or none
            signal.signal(ending, signal.SIG_IGN)
        for part in parts:
            part.remove_old_mask()
        for output in outputs:
            output.commit()
    return parts


def check(parts: list[Part], options: argparse.Namespace) -> None:
    documents = sum(part.documents for part in parts)
    if documents == 0:
        raise InputError(f"{options.file}: expected at least one document, received none")
    for part in parts:
        if part.documents == 0:
            raise UsageError(f"--val-share: expected a share that leaves documents for {part.path}, received "
                             f"'{options.val_share}' of {documents} documents")


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        for part in write(options_of(arguments)):
            print(part.describe(), file=sys.stderr)
        return OK
    except KeyboardInterrupt:
        print("headroom.tokens: interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED
    except Error as error:
        print(f"headroom.tokens: {error}", file=sys.stderr)
        return next(code for kind, code in ((UsageError, USAGE), (InputError, BAD_INPUT),
                                            (WriteError, CANNOT_WRITE), (Error, UNAVAILABLE))
                    if isinstance(error, kind))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
