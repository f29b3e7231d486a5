"""`python -m headroom.tokens`: texts as tokens, with a mask on what a model shall not learn to write."""
import array
import contextlib
import io
import json
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from headroom import tokens

END, BEGIN, TURN, TURN_END = "<|end|>", "<s>", "<|turn|>", "<|turn_end|>"

TEMPLATE = """
{%- for message in messages %}
{{- '<|turn|>' + message.role + '\n' + message.content + '<|turn_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|turn|>assistant\n' }}{% endif %}"""

# As Qwen3's: the last answer has its reasoning, or an empty place for it; answers before it have none.
TEMPLATE_WITH_REASONING = TEMPLATE.replace(
    "message.role + '\n' + message.content", "message.role + '\n' + ('<think></think>' if loop.last and "
    "message.role == 'assistant' else '') + message.content")

TEMPLATE_THAT_NUMBERS = TEMPLATE.replace("{{- '<|turn|>'", "{{- '<|turn|>' + messages|length|string")


def make_tokenizer(folder, *, words=(), begin=False, config=(("eos_token", END),)):
    """A token for each byte, for special tokens, and for `words` that no text contains."""
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *words]
    made = tokenizers.Tokenizer(models.BPE({one: i for i, one in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([END, BEGIN, TURN, TURN_END])
    if begin:
        made.post_processor = processors.TemplateProcessing(
            single=f"{BEGIN} $A {END}", special_tokens=[(one, made.token_to_id(one)) for one in (BEGIN, END)])
    made.enable_truncation(5)  # some published tokenizers have it; a training wants all tokens
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(config)))
    return made


class Tokens(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.out = self.folder / "train.bin"
        self.tokenizer = make_tokenizer(self.folder / "model")

    def command(self, *more, examples=None, file="data.jsonl"):
        if examples is not None:
            lines = [one if isinstance(one, (str, bytes)) else json.dumps(one) for one in examples]
            (self.folder / file).write_bytes(b"\n".join(
                one if isinstance(one, bytes) else one.encode() for one in lines) + b"\n")
        return [sys.executable, "-m", "headroom.tokens", file, "--tokenizer", "model", "--out", "train.bin",
                *more]

    def run_tokens(self, *more, examples=None, code=0, **given):
        done = subprocess.run(self.command(*more, examples=examples), cwd=self.folder, capture_output=True,
                              text=True, check=False, **given)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr

    def names(self):
        return sorted(one.name for one in self.folder.iterdir() if one.name not in ("model", "data.jsonl"))

    def about(self, path=None):
        return json.loads(pathlib.Path(f"{path or self.out}.json").read_text())

    def numbers(self, path=None):
        found = array.array({"uint16": "H", "uint32": "I"}[self.about(path)["dtype"]])
        found.frombytes((path or self.out).read_bytes())
        self.assertEqual(len(found), self.about(path)["tokens"])
        return list(found)

    def text(self, numbers=None):
        return self.tokenizer.decode(self.numbers() if numbers is None else numbers, skip_special_tokens=False)

    def learned(self):
        """The text of the tokens that count."""
        mask = (self.folder / "train.mask.bin").read_bytes()
        self.assertEqual(len(mask), len(self.numbers()))
        self.assertLessEqual(set(mask), {0, 1})
        self.assertEqual(mask.count(0), self.about()["masked"])
        return self.text([token for token, counts in zip(self.numbers(), mask) if counts])

    def test_texts(self):
        said = self.run_tokens(examples=[{"text": "Größe\n"}, "", {"text": "", "more": 1}, {"text": "two 🙂"}])
        self.assertEqual(self.text(), f"Größe\n{END}two 🙂{END}")
        self.assertEqual(self.about(), {
            "schema": 1, "dtype": "uint16", "tokens": 18, "vocab_size": 260, "document_end": 256,
            "documents": 2, "masked": 0, "source": "data.jsonl", "tokenizer": "model"})
        self.assertEqual(self.names(), ["train.bin", "train.bin.json"])
        self.assertEqual(said, "train.bin: 18 tokens (uint16) of 2 documents\n")

    def test_a_large_vocabulary_has_wide_tokens(self):
        for words, dtype in (((1 << 16) - 260, "uint16"), ((1 << 16) - 259, "uint32")):
            make_tokenizer(self.folder / "model", words=[f"word {i}" for i in range(words)])
            self.run_tokens(examples=[{"text": "ab"}])
            self.assertEqual(self.about()["dtype"], dtype)
            self.assertEqual(self.numbers()[-1], 256 + words)

    def test_the_answer_is_learned_and_the_prompt_is_not(self):
        self.run_tokens(examples=[{"prompt": "2+2=", "completion": " 4 🙂"}, {"prompt": "", "completion": "x"}])
        self.assertEqual(self.text(), f"2+2= 4 🙂{END}x{END}")
        self.assertEqual(self.learned(), f" 4 🙂{END}x{END}")

    def test_instructions_stand_in_alpacas_words(self):
        self.run_tokens(examples=[{"instruction": "Add {0}.", "input": "2 2", "output": "4"},
                                  {"instruction": "Go.", "input": "", "output": "Yes"}])
        self.assertIn("### Instruction:\nAdd {0}.\n\n### Input:\n2 2\n\n### Response:4", self.text())
        self.assertIn("### Instruction:\nGo.\n\n### Response:Yes", self.text())
        self.assertEqual(self.learned(), f"4{END}Yes{END}")

    def test_a_mask_that_begins_late_covers_all(self):
        self.run_tokens(examples=[{"text": "all of it"}] * 2000 + [{"prompt": "not", "completion": "but"},
                                                                   {"text": "and this"}])
        self.assertEqual(self.learned(), f"all of it{END}" * 2000 + f"but{END}and this{END}")

    def test_without_a_mask_an_old_one_goes(self):
        examples = [{"prompt": "a", "completion": "b"}]
        self.run_tokens(examples=examples)
        self.assertIn("train.mask.bin", self.names())
        self.run_tokens("--no-mask", examples=examples)
        self.assertEqual(self.names(), ["train.bin", "train.bin.json"])
        self.assertEqual(self.text(), f"ab{END}")

    def test_documents_begin_as_the_tokenizer_begins_them(self):
        make_tokenizer(self.folder / "model", begin=True)
        self.run_tokens(examples=[{"text": "a"}, {"prompt": "b", "completion": "c"}])
        self.assertEqual(self.text(), f"{BEGIN}a{END}{BEGIN}bc{END}")
        self.assertEqual(self.learned(), f"{BEGIN}a{END}c{END}")

    def chat(self, template, *examples, end=END, **given):
        make_tokenizer(self.folder / "model", begin=True, config={
            "eos_token": end, "chat_template": template, "tokenizer_class": "PreTrainedTokenizerFast"}.items())
        return self.run_tokens(**given, examples=[
            {"messages": [{"role": role, "content": content} for role, content in one]} for one in examples])

    TWO_ANSWERS = (("user", "hi"), ("assistant", "ho"), ("user", "ho ho"), ("assistant", "hum"))

    def test_what_the_assistant_says_is_learned(self):
        said = self.chat(TEMPLATE, (("system", "be"), *self.TWO_ANSWERS), (("user", "?"), ("assistant", "!")))
        self.assertRegex(said, r"^train.bin: \d+ tokens \(uint16\) of 2 documents, \d+% of them masked\n$")
        self.assertTrue(self.text().startswith(f"{TURN}system\nbe{TURN_END}\n{TURN}user\nhi{TURN_END}\n"))
        self.assertEqual(self.learned(), f"ho{TURN_END}\nhum{TURN_END}\n!{TURN_END}\n")
        self.assertEqual(self.text().count(END), 2)

    def test_a_template_that_ends_the_document_ends_it_once(self):
        self.chat(TEMPLATE.replace("turn_end|>\n'", "turn_end|>'"), self.TWO_ANSWERS, end=TURN_END)
        self.assertTrue(self.text().endswith(f"hum{TURN_END}"))
        self.assertEqual(self.about()["document_end"], self.tokenizer.token_to_id(TURN_END))

    def test_a_template_that_writes_earlier_answers_otherwise(self):
        self.chat(TEMPLATE_WITH_REASONING, self.TWO_ANSWERS)
        self.assertEqual(self.learned(), f"ho{TURN_END}\n<think></think>hum{TURN_END}\n")
        said = self.chat(TEMPLATE_THAT_NUMBERS, self.TWO_ANSWERS, code=65)
        self.assertIn("data.jsonl:1: cannot tell message 2 from the others", said)

    def test_what_a_template_refuses_has_its_line(self):
        good, bad = self.TWO_ANSWERS, (("nobody", "hi"),)
        said = self.chat("{{ raise_exception('no such role') if messages[0].role == 'nobody' }}", good, bad,
                         code=65)
        self.assertIn("data.jsonl:2: the chat template of model refuses it: no such role", said)

    def test_a_folder_in_an_older_form(self):
        """vocab.json and merges.txt, as GPT-2 was published; transformers makes a tokenizer of them."""
        alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), END]
        (self.folder / "model" / "tokenizer.json").unlink()
        for name, content in (("vocab.json", json.dumps({one: i for i, one in enumerate(alphabet)})),
                              ("merges.txt", "#version: 0.2\n"),
                              ("tokenizer_config.json", json.dumps({
                                  "tokenizer_class": "GPT2Tokenizer", "eos_token": END, "bos_token": END,
                                  "unk_token": END}))):
            (self.folder / "model" / name).write_text(content)
        said = self.run_tokens(examples=[{"text": "a ü"}])
        self.assertEqual(self.text(), f"a ü{END}")
        self.assertEqual(said, "train.bin: 5 tokens (uint16) of 1 document\n")

    def test_validation_documents(self):
        examples = [{"text": f"document {i % 300}"} for i in range(400)]
        self.run_tokens("--val-share", "0.2", examples=examples)
        val = self.folder / "val.bin"
        parts = [self.text(self.numbers(one)).split(END)[:-1] for one in (self.out, val)]
        self.assertCountEqual(parts[0] + parts[1], [one["text"] for one in examples])
        self.assertFalse(set(parts[0]) & set(parts[1]), "equal documents are in one part")
        self.assertTrue(40 < len(parts[1]) < 120, len(parts[1]))
        self.assertEqual(self.about(val)["documents"], len(parts[1]))
        before = val.read_bytes()
        self.run_tokens("--val-share", "0.2")
        self.assertEqual(val.read_bytes(), before)
        said = self.run_tokens("--val-share", "0.2", examples=examples[:1], code=64)
        self.assertIn("'0.2' of 1 documents", said)
        self.assertEqual(val.read_bytes(), before)

    def test_standard_input_and_a_key(self):
        done = subprocess.run(self.command("--text-key", "body", file="-"), cwd=self.folder, check=False,
                              capture_output=True, input=b'\xef\xbb\xbf{"body": "b", "text": "t"}\n')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.text(), f"b{END}")

    def test_wrong_lines_are_named(self):
        good = {"text": "a"}
        for line, words in (
                ('{"text": "a', "expected JSON, received '{\"text\": \"a' (Unterminated string"),
                (b'{"text": "\xff"}', "expected JSON"), ("[" * 100000, "expected JSON"),
                ("[1]", "expected an object with text, prompt and completion"),
                ({"body": "b", "n": 1}, "received an object with body, n; try --text-key body"),
                ({}, "received an object with no keys"),
                ({"text": None}, "expected text in 'text', received 'null'"),
                ({"prompt": ["a"], "completion": "b"}, "expected text in 'prompt'"),
                ({"messages": "hi"}, "expected a list of {\"role\", \"content\"}"),
                ({"messages": [{"from": "me"}]}, "expected a list of {\"role\", \"content\"}"),
                ('{"text": "\\ud83d"}', "expected Unicode text")):
            with self.subTest(line=str(line)[:20]):
                said = self.run_tokens(examples=[*[good] * 15, "", line, good], code=65)
                self.assertIn("headroom.tokens: data.jsonl:17: ", said)
                self.assertIn(words, said)
                self.assertEqual(self.names(), [])

    def test_wrong_orders(self):
        self.command(examples=[{"text": "a"}])
        for more, code, words in (
                (("--tokeniser", "x"), 64, "did you mean '--tokenizer'?"),
                (("a", "b"), 64, "unknown argument 'a'"),
                (("--val-share", "2"), 64, "between 0 and 1"), (("--val-share", "x"), 64, "--val-share"),
                (("--out", "data"), 64, "try data/train.bin"),
                (("--out", "val.bin", "--val-share", "0.5"), 64, "another --out"),
                (("--document-end", "<|ende|>"), 64, f"try {END}"),
                (("--out", "data.jsonl/no/train.bin"), 73, "Not a directory"),
                (("--tokenizer", "nowhere"), 65, "expected a folder"),
                (("--text-key", "b"), 65, "data.jsonl:1: expected b")):
            with self.subTest(more=more):
                self.assertIn(words, self.run_tokens(*more, code=code))
                self.assertEqual(self.names(), [])
        self.assertIn("expected at least one document", self.run_tokens(examples=[""], code=65))
        (self.folder / "data.jsonl").unlink()
        self.assertIn("cannot read data.jsonl: No such file", self.run_tokens(code=65))
        (self.folder / "model" / "tokenizer.json").write_text("{}")
        self.assertIn("tokenizer.json: expected a tokenizer", self.run_tokens(examples=[{"text": "a"}], code=65))

    def test_the_folder_is_made(self):
        self.command(examples=[{"text": "a"}])
        self.run_tokens("--out", "data/books/train.bin")
        self.assertTrue((self.folder / "data/books/train.bin").exists())

    def test_the_end_of_a_document(self):
        make_tokenizer(self.folder / "model", config={"eos_token": {"content": TURN_END}}.items())
        self.run_tokens(examples=[{"text": "a"}])
        self.assertEqual(self.text(), f"a{TURN_END}")
        self.run_tokens("--document-end", "b")
        self.assertEqual(self.text(), "ab")
        make_tokenizer(self.folder / "model", config=())
        self.assertIn(f"special tokens: {END}, {BEGIN}", self.run_tokens(code=64))

    def test_the_token_that_hides_others(self):
        """For BERT, which was trained without masks, on its inputs as labels."""
        config = (("eos_token", END), ("mask_token", {"content": TURN}))
        made = make_tokenizer(self.folder / "model", config=config)
        self.run_tokens(examples=[{"text": "a"}])
        self.assertEqual(self.about()["mask_token_id"], made.token_to_id(TURN))

    def test_a_long_error_of_transformers_is_cut(self):
        """A tokenizer_config.json without a class printed 6,000 letters: all model types that there are."""
        from headroom import documents
        said = documents._beginning(ValueError("Unrecognized model. " + "albert, align,\n" * 400))
        self.assertTrue(said.startswith("Unrecognized model. albert, align, albert") and said.endswith("..."))
        self.assertLess(len(said), 210)

    def test_packages_that_are_missing(self):
        for example, missing in (({"text": "a"}, "tokenizers"),
                                 ({"messages": [{"role": "user"}]}, "transformers")):
            self.command(examples=[example])
            program = (f"import sys, runpy; sys.modules['{missing}'] = None; sys.argv = {self.command()[2:]!r};"
                       "runpy.run_module('headroom.tokens', run_name='__main__')")
            done = subprocess.run([sys.executable, "-c", program], cwd=self.folder, capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 69, done.stderr)
            self.assertIn(f"try pip install {missing}", done.stderr)
            self.assertEqual(self.names(), [])

    def test_no_torch_is_loaded(self):
        self.command(examples=[{"text": "a"}])
        program = (f"import sys; from headroom import tokens; code = tokens.main({self.command()[3:]!r});"
                   "maps = open('/proc/self/maps').read();"
                   "sys.exit(code or 'torch' in sys.modules or 'libtorch' in maps or '/libheadroom.so' in maps)")
        subprocess.run([sys.executable, "-c", program], cwd=self.folder, check=True, capture_output=True)

    def test_a_full_disk_leaves_what_was_there(self):
        self.run_tokens(examples=[{"text": "old"}])
        before = self.out.read_bytes()
        said = self.run_tokens(
            "--val-share", "0.5", examples=[{"prompt": "p", "completion": "a long answer " * 50}] * 1000, code=73,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)))
        self.assertIn("cannot write", said)
        self.assertEqual(self.names(), ["train.bin", "train.bin.json"])
        self.assertEqual(self.out.read_bytes(), before)

    def test_an_interruption_leaves_what_was_there(self):
        self.run_tokens(examples=[{"text": "old"}])
        before = self.out.read_bytes()
        for ending, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with subprocess.Popen(self.command(file="-"), cwd=self.folder, stdin=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as process:
                # More than the pipe holds: when all is written, the program reads.
                process.stdin.write((json.dumps({"text": "new " * 1000}) + "\n") * 300)
                process.stdin.flush()
                self.assertTrue(any(name.endswith(".tmp") for name in self.names()))
                process.send_signal(ending)
                _, said = process.communicate()
            self.assertEqual(process.returncode, code, said)
            self.assertNotIn("Traceback", said)
            self.assertEqual(self.names(), ["train.bin", "train.bin.json"])
            self.assertEqual(self.out.read_bytes(), before)


class Progress(unittest.TestCase):
    def test_lines_with_the_rate_where_there_is_no_terminal(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), mock.patch("time.monotonic", side_effect=(0, 9, 20, 25, 40)):
            progress = tokens.Progress(1000)
            for read in (100, 250, 300, 500):
                progress.show(read, 8 * read)
            progress.end()
        self.assertEqual(said.getvalue(), "headroom.tokens: 25%, 2,000 tokens, 100/s, 60 s left\n"
                                          "headroom.tokens: 50%, 4,000 tokens, 100/s, 40 s left\n")

    def test_no_share_of_a_pipe(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), mock.patch("time.monotonic", side_effect=(0, 20)):
            tokens.Progress(None).show(250, 2000)
        self.assertEqual(said.getvalue(), "headroom.tokens: 2,000 tokens, 100/s\n")


if __name__ == "__main__":
    unittest.main()
