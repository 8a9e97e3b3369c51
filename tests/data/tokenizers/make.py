#!/usr/bin/env python3
"""Makes made/NAME/tokenizer.json.xz or tokenizer.model, and cases/NAME.json.xz, with the reference packages.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.3 && /tmp/v/bin/python make.py

Most tokenizers use the model REVEAL, whose ids spell every byte of every piece and where each piece begins: whatever
a normalizer or pre-tokenizer does shows in them.
"""
import base64, io, json, lzma, pathlib, random, shutil, struct, tempfile
import sentencepiece
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
MARK = "\u2581"

BYTES = {f"<0x{b:02X}>": b for b in range(256)}
REVEAL = {"type": "BPE", "vocab": BYTES, "merges": [], "byte_fallback": True, "continuing_subword_prefix": "##"}
PLAIN_BYTES = {"type": "BPE", "vocab": BYTES, "merges": [], "byte_fallback": True}

TEXTS = [
    "", " ", "  ", "a", " a", "a ", "  a  b ", "Hello, world!", "Hello  World\n\nfoo\tbar\r\n", "it's we'll I'D they've",
    "4\u00bd \ufb01 e\u0301 12345 \u0661\u0662\u0663", "\u00c5ngstr\u00f6m A\u030angstro\u0308m \u212b \u2126", "\u0130I\u0131i \u03a3\u03c2 \u01c5",
    "\u6f22\u5b57\u4eee\u540d\u306a\u304b \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab", "\uff8a\uff9f\uff76\uff9e \uff21\uff22\uff43", "a\u200bb\u200dc\u00add\ufeffe",
    "x\u0000y\u0001z\u007f\u0085w", "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea\U0001f44d\U0001f3fd", "a\u0316\u0301b\u0301\u0316 \u0344",
    "snake_case-kebab.dot/slash\\back", "$1,234.56 + 7%=\u20ac8 ^~`|<>", "\u00a0\u3000\u2028\u2029\u1680 nbsp", MARK + "x" + MARK + MARK + "y " + MARK,
    "don't stop -- now...!?", "\u037e \u0387 \u1fef \u2000", "\u0958 \u0929 \u09cb \u0d4a", "ABC abc AbC aBC", "1a2b 12ab \u2167\u2168 \u00b2\u00b3",
    "<a>", "x<a>y", "x <a> y", "<a><a>  <a>", "  <b>  x<b>  ", "foo foobar foo_foo barfoo foo.", "<A>x<a>", "\u00e9<\u00e9>e\u0301<e\u0301>",
    "<|im_start|>user", "a <|im_start|> b", "the quick brown fox", "unaffable unaffordable", "a" * 120, "\u24d0\u2460_\u00b7 \u0903\u093f",
]


def doc(model=REVEAL, normalizer=None, pre=None, post=None, decoder=None, added=()):
    tokens = []
    for i, t in enumerate(added):
        base = {"id": i, "content": "", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
        tokens.append({**base, **t})
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": post, "decoder": decoder, "model": model}


def seq(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def darts(table):
    """A Darts double array over `table` (bytes -> offset), by the plainest placement that fits."""
    trie = {}
    for key, value in table.items():
        node = trie
        for b in key:
            node = node.setdefault(b, {})
        node[None] = value
    units, used = [0] * 1024, {0}

    def place(node, at):
        labels = [(-1 if b is None else b) for b in node]
        base = 1
        while True:
            ids = [base ^ (0 if b == -1 else b) for b in labels]
            if base != at and all(i not in used and i < len(units) for i in ids) and (at ^ base) < (1 << 21):
                break
            base += 1
        used.update(ids)
        units[at] |= ((at ^ base) << 10) | (0x100 if None in node else 0)
        for b, child in node.items():
            i = base ^ (0 if b is None else b)
            if b is None:
                units[i] = 0x80000000 | child
            else:
                units[i] |= b
                place(child, i)

    place(trie, 0)
    return struct.pack(f"<{len(units)}I", *units)


def charsmap(mapping):
    pool, table = b"", {}
    for key, value in mapping.items():
        table[key.encode()] = len(pool)
        pool += value.encode() + b"\0"
    trie = darts(table)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + pool).decode()


CHARSMAP = charsmap({"\u00bd": "1/2", "\ufb01": "fi", "e\u0301": "\u00e9", "\u3000": " ", "\u00a0": " ", "\u0001": "", "\u212b": "\u00c5",
                     "A": "a", "AB": "Q", "\t": " "})

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

A = {"content": "<a>"}
B = {"content": "<b>"}
FOO = {"content": "foo"}
made = {}

# Normalizers
for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"):
    made["norm-" + name.lower()] = doc(normalizer={"type": name})
made["norm-strip"] = doc(normalizer={"type": "Strip", "strip_left": True, "strip_right": False})
made["norm-strip-right"] = doc(normalizer={"type": "Strip", "strip_left": False, "strip_right": True}, added=[A])
made["norm-prepend"] = doc(normalizer={"type": "Prepend", "prepend": MARK}, added=[A, {**B, "normalized": True}])
made["norm-replace"] = doc(normalizer={"type": "Replace", "pattern": {"String": " "}, "content": MARK}, added=[{**A, "normalized": True}])
made["norm-replace-regex"] = doc(normalizer={"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\d&&[^3]]+"}, "content": "#"})
made["norm-replace-none"] = doc(normalizer={"type": "Replace", "pattern": {"Regex": r"^\s+|o"}, "content": ""})
made["norm-nfd-strip-lower"] = doc(normalizer=seq("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}))
made["norm-precompiled"] = doc(normalizer={"type": "Precompiled", "precompiled_charsmap": CHARSMAP})
made["norm-bert"] = doc(normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
                        pre={"type": "BertPreTokenizer"})
made["norm-bert-cased"] = doc(normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": False, "strip_accents": None, "lowercase": False})
made["norm-bert-accents"] = doc(normalizer={"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": True, "strip_accents": True, "lowercase": False})

# Pre-tokenizers
for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
    made["pre-split-" + behavior.lower()] = doc(pre=split({"String": " "}, behavior))
    made["pre-split-invert-" + behavior.lower()] = doc(pre=split({"Regex": r"\w+|\s"}, behavior, True))
    made["pre-punctuation-" + behavior.lower()] = doc(pre={"type": "Punctuation", "behavior": behavior})
made["pre-qwen35"] = doc(pre=split({"Regex": QWEN35}))
made["pre-kimi"] = doc(pre=split({"Regex": KIMI}))
made["pre-falcon"] = doc(pre=seq("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"},
                                 {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
                                 {"type": "Digits", "individual_digits": False}, split({"Regex": "[0-9][0-9][0-9]"})))
made["pre-byte-level"] = doc(pre={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, added=[A])
made["pre-byte-level-plain"] = doc(pre={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False})
made["pre-whitespace"] = doc(pre={"type": "Whitespace"})
made["pre-whitespace-split"] = doc(pre={"type": "WhitespaceSplit"})
made["pre-bert"] = doc(pre={"type": "BertPreTokenizer"})
made["pre-digits"] = doc(pre={"type": "Digits", "individual_digits": True}, normalizer={"type": "NFKC"})
made["pre-digits-runs"] = doc(pre={"type": "Digits", "individual_digits": False})
made["pre-delimiter"] = doc(pre={"type": "CharDelimiterSplit", "delimiter": "o"})
for scheme in ("always", "first", "never"):
    for do_split in (True, False):
        made[f"pre-metaspace-{scheme}{'' if do_split else '-whole'}"] = doc(
            pre={"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": do_split}, added=[A, {**B, "normalized": True}])
made["pre-metaspace-stripped"] = doc(normalizer={"type": "Strip", "strip_left": True, "strip_right": True}, added=[A],
                                     pre=seq("pretokenizers", {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": True}))
PATTERNS = [r"\s+$", r"^\w", r"\bfoo\b", r"[^\s\p{L}]+", r"\S+", r"[\W\d]+", r"[[:alpha:]]+", r"a{,2}", r"(?m:b.f)", r"\h+", r"[a-f&&[^b]]+",
            r"[^a[bc]]+", r"o*", r"x{1,2}+", r"(?<=o)\W", r"\p{^L}+", r"(?i:HELLO|st)", r"[\p{L}z-]+|\d++", r"\D+", r"(\w)\1", r"[\]\-\\^]", r"\u0061|\x62",
            r"[[:punct:]]+|[[:upper:]]", r"[^[:graph:]]+|[[:lower:]]", r"\B.", r"\W+|\w"]
for i, pattern in enumerate(PATTERNS):
    made[f"regex-{i:02d}"] = doc(pre=split({"Regex": pattern}))

# Added tokens
FLAGS = [{}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}, {"single_word": True}, {"normalized": True},
         {"normalized": True, "single_word": True, "rstrip": True}, {"special": True}, {"special": True, "normalized": True, "lstrip": True}]
for i, flags in enumerate(FLAGS):
    made[f"added-{i}"] = doc(normalizer={"type": "Lowercase"}, pre={"type": "WhitespaceSplit"}, added=[{**A, **flags}, {**B, **flags}, {**FOO, **flags}])
made["added-nested"] = doc(added=[{"content": "fo"}, {"content": "foo"}, {"content": "oo_f", "normalized": True}, {"content": "o"}, {"content": "  "}])
made["added-llama"] = doc(model=PLAIN_BYTES, normalizer=seq("normalizers", {"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}),
                          added=[{**A, "special": True}, {**B, "normalized": True}, {**FOO, "normalized": True, "lstrip": True}],
                          decoder=seq("decoders", {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"},
                                      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}))
for form in (True, False):  # C05
    made[f"added-im-start{'-normalized' if form else ''}"] = doc(
        model=PLAIN_BYTES, normalizer=made["added-llama"]["normalizer"], added=[{"content": "<|im_start|>", "normalized": form}])
made["pre-nfkc-digits"] = doc(normalizer={"type": "NFKC"}, pre={"type": "Digits", "individual_digits": True})  # C05
made["pre-split-nothing"] = doc(pre=split({"String": ""}))

# BPE
LETTERS = list("abcdefghijklmnopqrstuvwxyz_ ") + [MARK]
MERGES = [("t", "h"), ("th", "e"), ("f", "o"), ("fo", "o"), ("a", "a"), ("aa", "aa"), ("b", "a"), ("ba", "r"), ("q", "u"), ("qu", "i"), ("c", "k"), ("e", "r"), ("o", "w")]


def bpe(letters=LETTERS, merges=MERGES, extra=(), listed=False, **options):
    vocab = {}
    for piece in list(extra) + letters + [a + b for a, b in merges]:
        vocab.setdefault(piece, len(vocab))
    return {"type": "BPE", "vocab": vocab, "merges": [list(m) if listed else " ".join(m) for m in merges], **options}


made["bpe-no-unk"] = doc(model=bpe())
made["bpe-unk"] = doc(model=bpe(extra=["<unk>"], unk_token="<unk>", listed=True))
made["bpe-fuse-unk"] = doc(model=bpe(extra=["<unk>"], unk_token="<unk>", fuse_unk=True))
made["bpe-some-bytes"] = doc(model=bpe(extra=["<unk>", "<0x0A>", "<0xC3>", "<0xA9>"], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
made["bpe-ignore-merges"] = doc(model=bpe(extra=["quick", "foobar", "world"], ignore_merges=True), pre={"type": "Whitespace"})
made["bpe-suffix"] = doc(model=bpe(letters=LETTERS + [c + "</w>" for c in LETTERS], merges=[("t", "h"), ("th", "e</w>"), ("f", "o"), ("fo", "o</w>"), ("fo", "o")],
                                   extra=["<unk>"], unk_token="<unk>", end_of_word_suffix="</w>"), pre={"type": "WhitespaceSplit"}, decoder={"type": "BPEDecoder", "suffix": "</w>"})
made["bpe-prefix"] = doc(model=bpe(letters=LETTERS + ["##" + c for c in LETTERS], merges=[("t", "##h"), ("th", "##e"), ("f", "##o"), ("##o", "##o"), ("f", "##oo")],
                                   extra=["<unk>", "th", "the", "fo", "foo", "##oo"], unk_token="<unk>", continuing_subword_prefix="##"), pre={"type": "WhitespaceSplit"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True})
made["bpe-words"] = doc(model=bpe(merges=MERGES + [(MARK, "the"), (MARK, MARK), (MARK, "foo")], extra=list(BYTES), byte_fallback=True, unk_token="<0x00>"),
                        normalizer={"type": "Replace", "pattern": {"String": " "}, "content": MARK},
                        decoder=seq("decoders", {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}))

# Unigram
random.seed(7)
PIECES = [MARK, "a", "e", "o", "b", "f", "t", "h", "r", "s", "u", "q", "i", "c", "k", "w", "n", "x", "l", "d", MARK + "the", MARK + "fo", "foo", "bar", "oo", "aa", "aaa",
          MARK + "quick", "brown", "own", MARK + "f", "ox", "un", "aff", "able", "ord", MARK + "un", "ll", "el", "Hel", "lo", "wor", "ld"]
UNI = [["<unk>", 0.0], ["<s>", 0.0], ["</s>", 0.0]] + [[p, round(-1 - random.random() * 9 + len(p) * 0.6, 3)] for p in PIECES]
META = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
T5 = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
      "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}}
made["unigram"] = doc(model={"type": "Unigram", "unk_id": 0, "vocab": UNI}, pre=META, post=T5, decoder=META, added=[{"content": "<unk>", "special": True}, {"content": "</s>", "special": True}])
made["unigram-whole"] = doc(model={"type": "Unigram", "unk_id": 0, "vocab": UNI}, normalizer=seq("normalizers", {"type": "Precompiled", "precompiled_charsmap": CHARSMAP},
                            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}), pre={**META, "split": False}, decoder={**META, "prepend_scheme": "never"})
made["unigram-bytes"] = doc(model={"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": UNI + [[b, -9.0] for b in BYTES]}, pre={**META, "prepend_scheme": "first"},
                            decoder=seq("decoders", {"type": "ByteFallback"}, {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": True}))
made["unigram-no-unk"] = doc(model={"type": "Unigram", "unk_id": None, "vocab": UNI[3:]}, pre=META, decoder=META)

# WordPiece, WordLevel
WP = {p: i for i, p in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "quick", "un", "##aff", "##able", "##ord", "foo", "##bar", "fo", "##o", "##foo", "a", "##a", "##aaa",
                                  "hello", "world", ",", ".", "!", "'", "s", "t", "don", "it", "##s", "1", "##2", "##3", "2", "now", "stop", "-", "?", "i", "we", "##l", "ll", "##e"])}
BERT_POST = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
SPECIALS = [{"content": c, "special": True} for c in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")]
WPM = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": WP}
BERT_NORM = made["norm-bert"]["normalizer"]
made["word-piece"] = doc(model=WPM, normalizer=BERT_NORM, pre={"type": "BertPreTokenizer"}, post=BERT_POST, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}, added=SPECIALS)
made["word-piece-plain"] = doc(model={**WPM, "max_input_chars_per_word": 5}, pre={"type": "WhitespaceSplit"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": False})
WL = {w: i for i, w in enumerate(["<unk>", "the", "quick", "foo", "Hello", ",", "world", "!", "a", "<s>", "</s>"])}
made["word-level"] = doc(model={"type": "WordLevel", "vocab": WL, "unk_token": "<unk>"}, pre={"type": "Whitespace"},
                         post={"type": "RobertaProcessing", "sep": ["</s>", 10], "cls": ["<s>", 9], "trim_offsets": True, "add_prefix_space": False}, added=[{"content": "<s>", "special": True}, {"content": "</s>", "special": True}])
made["word-level-no-unk"] = doc(model={"type": "WordLevel", "vocab": {"a": 0, "Hello": 3, ",": 1, "world": 7, "!": 9}, "unk_token": "[UNK]"}, pre={"type": "Whitespace"})

# Post-processors and decoders
made["post-sequence"] = doc(post=seq("processors", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
                                     {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<a>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<b>", "type_id": 0}}],
                                      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                                      "special_tokens": {"<a>": {"id": "<a>", "ids": [256, 65], "tokens": ["<a>", "A"]}, "<b>": {"id": "<b>", "ids": [257], "tokens": ["<b>"]}}}),
                            added=[{**A, "special": True}, {**B, "special": True}])
CHARS = {c: i for i, c in enumerate(sorted(set("".join(TEXTS)) | {MARK}))}
EACH = {"type": "BPE", "vocab": CHARS, "merges": []}
made["dec-none"] = doc(model=EACH, added=[{**A, "special": True}])
made["dec-replace-regex"] = doc(model=EACH, decoder=seq("decoders", {"type": "Replace", "pattern": {"Regex": "[aeiou]"}, "content": "*"}, {"type": "Fuse"}))
made["dec-fuse-replace"] = doc(model=EACH, decoder=seq("decoders", {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "oo"}, "content": "0"}, {"type": "Replace", "pattern": {"Regex": "f0+"}, "content": "F"}))
made["dec-strip-tokens"] = doc(model=EACH, decoder=seq("decoders", {"type": "Strip", "content": "o", "start": 1, "stop": 0}))
made["dec-strip-text"] = doc(model=EACH, decoder=seq("decoders", {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}))
made["dec-byte-level"] = doc(model={**EACH, "vocab": {**{c: i for i, c in enumerate(__import__("tokenizers").pre_tokenizers.ByteLevel.alphabet())}}},
                             pre={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                             added=[{**A, "special": True}, {"content": "<\u00e9>"}, {"content": "foo bar"}])


def cases_of(tokenizer):
    out = []
    for text in TEXTS:
        try:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            special = tokenizer.encode(text, add_special_tokens=True).ids
            case = {"text": text, "ids": ids, "ids_special": special, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                    "decoded_skip": tokenizer.decode(special, skip_special_tokens=True)}
        except BaseException:  # the reference has no answer for this text
            continue
        out.append(case)
    return out


def main():
    for folder in ("made", "cases"):
        shutil.rmtree(HERE / folder, ignore_errors=True)
    (HERE / "cases").mkdir()
    for name, spec in made.items():
        text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
        try:
            tokenizer = Tokenizer.from_str(text)
        except BaseException as e:
            print(f"{name}: not made: {e}")
            continue
        (HERE / "made" / name).mkdir(parents=True)
        (HERE / "made" / name / "tokenizer.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))
        cases = json.dumps({"cases": cases_of(tokenizer)}, separators=(",", ":"))
        (HERE / "cases" / (name + ".json.xz")).write_bytes(lzma.compress(cases.encode(), preset=9))
    make_sentencepiece()
    make_long()


# Long runs of one kind of character, for the shared tokenizers (and one of ours): ids must be right, and soon there.
LONG = ["A" * 200_000, "." * 200_000, " " * 200_000, "\u6f22" * 200_000, "\n" * 200_000, "e\u0301" * 60_000, " " * 200_000 + "x"]


def make_long():
    shared = HERE / "../../../../shared/tokenizers"
    (HERE / "long").mkdir(exist_ok=True)
    for name in ("gptoss", "gemma3", "llama2", "llama3", "qwen3", "deepseek_v3", "pre-qwen35"):
        folder = HERE / "made" if name == "pre-qwen35" else shared
        if not folder.exists():
            continue
        tokenizer = Tokenizer.from_str(lzma.open(folder / name / "tokenizer.json.xz").read().decode())
        cases = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids} for text in LONG]
        packed = lzma.compress(json.dumps({"cases": cases}, separators=(",", ":")).encode(), preset=9)
        (HERE / "long" / (name + ".json.xz")).write_bytes(packed)


CORPUS = ["the quick brown fox jumps over the lazy dog", "unaffable and unaffordable words", "hello world hello there", "foo bar foobar barfoo",
          "it's what we'll see when they've gone", "numbers 1 12 123 1234 12345", "a aa aaa aaaa", "snake_case and kebab-case"] * 20
# name -> options of the trainer; "rules": a table of its own normalization rules
SENTENCEPIECE = {
    "spm-bpe-bytes": dict(model_type="bpe", vocab_size=380, byte_fallback=True, split_digits=True, add_dummy_prefix=True, remove_extra_whitespaces=False),
    "spm-bpe": dict(model_type="bpe", vocab_size=110, user_defined_symbols=["<a>", "foo", "  "], remove_extra_whitespaces=False),
    "spm-bpe-no-prefix": dict(model_type="bpe", vocab_size=110, add_dummy_prefix=False, remove_extra_whitespaces=True),
    "spm-unigram": dict(model_type="unigram", vocab_size=100, pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "spm-unigram-bytes": dict(model_type="unigram", vocab_size=370, byte_fallback=True, user_defined_symbols=["<a>"], remove_extra_whitespaces=False),
    "spm-unigram-rules": dict(model_type="unigram", vocab_size=100, rules={"\u00bd": "1/2", "\ufb01": "fi", "e\u0301": "\u00e9", "\u3000": " ", "\u00a0": " ", "\u0001": "", "A": "a", "AB": "Q", "\t": " ", "\n": " "}),
}


def make_sentencepiece():
    for name, options in SENTENCEPIECE.items():
        options = dict(options)
        rules = options.pop("rules", None)
        with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as table:
            for key, value in (rules or {}).items():
                print(" ".join(f"{ord(c):X}" for c in key), " ".join(f"{ord(c):X}" for c in value), sep="\t", file=table)
            table.flush()
            how = {"normalization_rule_tsv": table.name} if rules else {"normalization_rule_name": "identity"}
            model = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=model, minloglevel=3, hard_vocab_limit=False, **how, **options)
        sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        bos = [sp.bos_id()] if options["model_type"] == "bpe" else []
        cases = []
        for text in TEXTS:
            if "\0" in text:  # ends a C string in places
                continue
            ids = sp.encode(text)
            case = {"text": text, "ids": ids, "ids_special": bos + ids}
            if sp.unk_id() not in ids:  # which the reference decodes to a mark of its own
                case["decoded"] = sp.decode(ids)
            cases.append(case)
        (HERE / "made" / name).mkdir(parents=True)
        (HERE / "made" / name / "tokenizer.model").write_bytes(model.getvalue())
        packed = lzma.compress(json.dumps({"cases": cases}, separators=(",", ":")).encode(), preset=9)
        (HERE / "cases" / (name + ".json.xz")).write_bytes(packed)


main()
