"""Documents for a training: from lines of JSON to tokens, with a mark on those that a model shall learn to
write. `tokens.py` writes them into files."""
from __future__ import annotations

import contextlib
import dataclasses
import difflib
import itertools
import json
import os
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Optional

from headroom.errors import InputError, UnavailableError, UsageError

if TYPE_CHECKING:
    import tokenizers

# The words around an instruction in Stanford Alpaca (github.com/tatsu-lab/stanford_alpaca, train.py).
WITH_INPUT = ("Below is an instruction that describes a task, paired with an input that provides further "
              "context. Write a response that appropriately completes the request.\n\n"
              "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:")
WITHOUT_INPUT = ("Below is an instruction that describes a task. Write a response that appropriately "
                 "completes the request.\n\n### Instruction:\n{instruction}\n\n### Response:")

KINDS = "text, prompt and completion, instruction and output, or messages"


@dataclasses.dataclass(frozen=True)
class Document:
    text: str
    answers: Optional[list[tuple[int, int]]] = None  # characters [begin, end) to learn; None: all
    is_chat: bool = False  # the template has put the tokenizer's first and last tokens into the text


class Line(NamedTuple):
    """A line of a file: where it is, for errors, and its bytes."""
    where: str  # "data.jsonl:17"
    content: bytes


def lines_of(name: str, file: Iterator[bytes]) -> Iterator[Line]:
    """The lines that are not blank."""
    for number, content in enumerate(file, 1):
        if not content.isspace():
            yield Line(f"{name}:{number}", content)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _beginning(error: Exception) -> str:
    """transformers lists all of its model types, some 6,000 letters, where it does not know one."""
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:200] + "..."


def _object(line: Line) -> dict[str, Any]:
    try:
        found = json.loads(line.content.rstrip())
    except (ValueError, RecursionError) as error:
        why = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
        raise InputError(f"{line.where}: expected JSON, received "
                         f"{_shown(line.content[:80].decode(errors='replace').rstrip())} ({why})") from None
    if not isinstance(found, dict):
        raise InputError(f"{line.where}: expected an object with {KINDS}, received {_shown(found)}")
    return found


def _text(line: Line, example: dict[str, Any], key: str) -> str:
    value = example[key]
    if not isinstance(value, str):
        raise InputError(f"{line.where}: expected text in '{key}', received {_shown(value)}")
    return value


def _answered(prompt: str, answer: str) -> Document:
    return Document(prompt + answer, [(len(prompt), len(prompt) + len(answer))])


def _instruction(line: Line, example: dict[str, Any]) -> Document:
    words = {key: _text(line, example, key) for key in ("instruction", "input", "output") if key in example}
    form = WITH_INPUT if words.get("input") else WITHOUT_INPUT
    return _answered(form.format(**words), words["output"])


def _answer_end(text: str, begin: int, upto: str, answer: Any) -> Optional[int]:
    """Where an answer ends in the conversation: where the conversation up to it ends. Some templates write
    an answer otherwise once more follows it (Qwen3 leaves out its reasoning): there, behind its words."""
    if text.startswith(upto) and len(upto) >= begin:
        return len(upto)
    words = answer.strip() if isinstance(answer, str) else ""
    found = text.find(words, begin)
    end = upto[upto.rfind(words) + len(words):] if words in upto else ""
    at = found + len(words)
    return at + len(end) if words and found >= 0 and text.startswith(end, at) else None


def _conversation(line: Line, example: dict[str, Any], tokenizer: Tokenizer, mask: bool) -> Document:
    messages = example["messages"]
    if not (isinstance(messages, list) and messages and
            all(isinstance(one, dict) and "role" in one for one in messages)):
        raise InputError(f"{line.where}: expected a list of {{\"role\", \"content\"}} in 'messages', received "
                         f"{_shown(messages)}")

    def rendered(count: int, for_an_answer: bool = False) -> str:
        return tokenizer.rendered(line.where, messages[:count], example.get("tools"), for_an_answer)

    text = rendered(len(messages))
    answers = []
    for i, message in enumerate(messages if mask else []):
        if message["role"] != "assistant":
            continue
        before = rendered(i, for_an_answer=True) if i else ""
        end = _answer_end(text, len(before), rendered(i + 1), message.get("content"))
        if not text.startswith(before) or end is None:
            raise InputError(f"{line.where}: cannot tell message {i + 1} from the others: the chat template "
                             "writes it otherwise when more follow; try --no-mask")
        answers.append((len(before), end))
    return Document(text, answers, is_chat=True)


def document_of(line: Line, text_key: Optional[str], tokenizer: Tokenizer, mask: bool = True) -> Document:
    """The document of a line; without `mask` all of it is learned. Raises InputError with the line's number."""
    example = _object(line)
    if text_key is not None and text_key in example:
        found = Document(_text(line, example, text_key))
    elif text_key is None and "messages" in example:
        found = _conversation(line, example, tokenizer, mask)
    elif text_key is None and {"prompt", "completion"} <= example.keys():
        found = _answered(_text(line, example, "prompt"), _text(line, example, "completion"))
    elif text_key is None and {"instruction", "output"} <= example.keys():
        found = _instruction(line, example)
    elif text_key is None and "text" in example:
        found = Document(_text(line, example, "text"))
    else:
        texts = [key for key, value in example.items() if isinstance(value, str)]
        raise InputError(f"{line.where}: expected {text_key or KINDS}, received an object with "
                         f"{', '.join(example) or 'no keys'}" +
                         (f"; try --text-key {texts[0]}" if texts else ""))
    try:
        if b"\\u" in line.content:  # half of a surrogate pair is JSON, and no text
            found.text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{line.where}: expected Unicode text, received "
                         f"{error.object[error.start]!r}") from None
    return found if mask else dataclasses.replace(found, answers=None)


# ---- The tokenizer

class Tokenizer:
    """The tokenizer of a folder, with the token behind each document and those before it."""

    def __init__(self, folder: str, document_end: Optional[str] = None) -> None:
        self.folder = folder
        self._whole: Any = None
        if not os.path.isdir(folder):
            raise InputError(f"--tokenizer: expected a folder with tokenizer.json, received '{folder}'; try "
                             "hf download MODEL --include 'token*' --local-dir DIR")
        self._fast = self._load()
        self._fast.no_padding()
        self._fast.no_truncation()
        self.vocab_size: int = max(self._fast.get_vocab().values()) + 1
        self.document_end = self._find_document_end(document_end)
        self.mask_token = self._find_mask_token()
        # An empty text has the tokens that begin a document and, with some tokenizers, end it.
        self.begin = list(itertools.takewhile(lambda token: token != self.document_end,
                                              self._fast.encode("").ids))

    def _load(self) -> tokenizers.Tokenizer:
        try:
            import tokenizers
        except ImportError as error:
            raise UnavailableError(f"the package tokenizers is needed ({error}); try pip install "
                                   "tokenizers") from None
        file = os.path.join(self.folder, "tokenizer.json")
        if not os.path.exists(file):
            fast: Optional[tokenizers.Tokenizer] = getattr(self._transformers(), "backend_tokenizer", None)
            if fast is None:
                raise InputError(f"{self.folder}: expected tokenizer.json, or files that transformers makes one "
                                 "of, received a tokenizer in Python")
            return fast
        try:
            return tokenizers.Tokenizer.from_file(file)
        except Exception as error:  # the package raises nothing more exact
            raise InputError(f"{file}: expected a tokenizer, received '{error}'") from None

    def _transformers(self) -> Any:
        if self._whole is None:
            # A tokenizer needs no torch, which takes seconds to load, and no advice that it is missing.
            os.environ |= {"USE_TORCH": "0", "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"}
            try:
                from transformers import AutoTokenizer
            except ImportError as error:
                raise UnavailableError("conversations, and folders without tokenizer.json, need the package "
                                       f"transformers ({error}); try pip install transformers jinja2") from None
            try:
                self._whole = AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
            except Exception as error:  # of any part of transformers
                raise InputError(f"{self.folder}: expected a tokenizer, received '{_beginning(error)}'; try a "
                                 "folder whose tokenizer_config.json names its tokenizer_class") from None
        return self._whole

    def _named_in(self, file: str, key: str) -> Any:
        with contextlib.suppress(OSError, ValueError):
            with open(os.path.join(self.folder, file), encoding="utf-8") as opened:
                found = json.load(opened).get(key)
            return found.get("content") if isinstance(found, dict) else found
        return None

    def _find_document_end(self, asked: Optional[str]) -> int:
        special = [token.content for token in self._fast.get_added_tokens_decoder().values() if token.special]
        if asked is not None:
            found = self._fast.token_to_id(asked)
            if found is None:
                near = difflib.get_close_matches(asked, special, 1) or special[:1]
                raise UsageError(f"--document-end: expected a token of {self.folder}, received '{asked}'" +
                                 (f"; try {near[0]}" if near else ""))
            return found
        for file in ("tokenizer_config.json", "special_tokens_map.json"):
            token = self._named_in(file, "eos_token")
            found = self._fast.token_to_id(token) if isinstance(token, str) else None
            if found is not None:
                return found
        raise UsageError(f"--document-end: expected a token, received none, and {self.folder} names no eos_token" +
                         (f"; try one of its special tokens: {', '.join(special[:5])}" if special else ""))

    def _find_mask_token(self) -> Optional[int]:
        """The token that hides others in the training of models such as BERT; most tokenizers have none."""
        for file in ("tokenizer_config.json", "special_tokens_map.json"):
            token = self._named_in(file, "mask_token")
            if isinstance(token, str):
                found: Optional[int] = self._fast.token_to_id(token)
                return found
        return None

    def rendered(self, where: str, messages: list[dict[str, Any]], tools: Optional[list[Any]],
                 for_an_answer: bool) -> str:
        """The text of messages in the chat template, with the header of an answer that would follow."""
        whole = self._transformers()
        try:
            return str(whole.apply_chat_template(messages, tools=tools, tokenize=False,
                                                 add_generation_prompt=for_an_answer))
        except ImportError as error:
            raise UnavailableError(f"{where}: conversations need the package jinja2 ({error}); try pip install "
                                   "jinja2") from None
        except Exception as error:  # of the template, which may be any program
            raise InputError(f"{where}: the chat template of {self.folder} refuses it: {error}") from None

    def encode(self, documents: list[Document]) -> Iterator[tuple[list[int], Optional[bytes]]]:
        """The tokens of each document and, if not all of them are learned, a 1 for each that is."""
        encoded = self._fast.encode_batch([one.text for one in documents], add_special_tokens=False)
        for document, found in zip(documents, encoded):
            begin = [] if document.is_chat else self.begin
            ids = begin + found.ids
            end = [] if document.is_chat and ids[-1:] == [self.document_end] else [self.document_end]
            mask = None
            if document.answers is not None:
                # The model ends its answer with the document's end, but a template has an end of its own.
                mask = bytes(len(begin)) + learned(document, found.offsets) + \
                    bytes([not document.is_chat]) * len(end)
            yield ids + end, mask


def learned(document: Document, offsets: list[tuple[int, int]]) -> bytes:
    """1 for each token with a character of an answer."""
    is_answer = bytearray(len(document.text))
    for begin, end in document.answers or []:
        is_answer[begin:end] = b"\1" * (end - begin)
    return bytes(is_answer.find(1, begin, end) >= 0 for begin, end in offsets)
