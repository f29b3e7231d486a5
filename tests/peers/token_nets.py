"""The nets of tests/nets over tokens, and the parts that nets over images share (nets.py)."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def ints(*sizes, below):
    return ("int", sizes, below)


def floats(*sizes):
    return ("float", sizes, 0)


def attention(q, k, v, heads, causal):
    batch, width = q.size(0), q.size(2)
    q = q.view(batch, -1, heads, width // heads).transpose(1, 2)
    k = k.view(batch, -1, heads, width // heads).transpose(1, 2)
    v = v.view(batch, -1, heads, width // heads).transpose(1, 2)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return out.transpose(1, 2).reshape(batch, -1, width)


class Block(nn.Module):
    def __init__(self, width, heads, causal, dropout, across=False):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        if across:
            self.norm3 = nn.LayerNorm(width)
            self.query = nn.Linear(width, width)
            self.key_value = nn.Linear(width, 2 * width)
            self.out2 = nn.Linear(width, width)
        self.heads, self.causal, self.dropout = heads, causal, dropout

    def forward(self, x, memory=None):
        h = self.norm1(x)
        h = self.qkv(h)
        q, k, v = h.chunk(3, -1)
        h = attention(q, k, v, self.heads, self.causal)
        del q, k, v
        h = self.out(h)
        h = F.dropout(h, self.dropout) if self.dropout else h
        x = x + h
        if memory is not None:
            h = self.norm3(x)
            q = self.query(h)
            h = self.key_value(memory)
            k, v = h.chunk(2, -1)
            h = attention(q, k, v, self.heads, False)
            del q, k, v
            h = self.out2(h)
            x = x + h
        h = self.norm2(x)
        h = self.up(h)
        h = F.gelu(h)
        h = self.down(h)
        h = F.dropout(h, self.dropout) if self.dropout else h
        return x + h


class Gpt(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.token = nn.Embedding(c["vocabulary"], c["width"])
        self.place = nn.Embedding(c["length"], c["width"])
        self.blocks = nn.ModuleList(Block(c["width"], c["heads"], True, c.get("dropout", 0))
                                    for _ in range(c["layers"]))
        self.norm = nn.LayerNorm(c["width"])
        self.head = nn.Linear(c["width"], c["vocabulary"], bias=False)
        if c.get("tied"):
            self.head.weight = self.token.weight
        self.checkpointed = bool(c.get("checkpointed"))
        self.inputs = [ints(c["batch"], c["length"], below=c["vocabulary"])] * 2

    def loss(self, tokens, target):
        places = torch.arange(tokens.size(1), device=tokens.device)
        x = self.token(tokens)
        h = self.place(places)
        x = x + h
        del h
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True) if self.checkpointed else block(x)
        x = self.norm(x)
        x = self.head(x)
        return F.cross_entropy(x.view(-1, x.size(-1)), target.view(-1))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.to(torch.float32)
        h = wide.pow(2)
        h = h.mean(-1, keepdim=True)
        h = h + 1e-6
        h = torch.rsqrt(h)
        wide = wide * h
        return self.weight * wide.to(x.dtype)


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    h = torch.cat((-second, first), -1)
    del first, second
    h = h * sin
    x = x * cos
    return x + h


class LlamaBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, heads, groups, hidden = c["width"], c["heads"], c["groups"], c["hidden"]
        size = width // heads
        self.norm1 = RmsNorm(width)
        self.norm2 = RmsNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * size, bias=False)
        self.v = nn.Linear(width, groups * size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.heads, self.groups, self.size = heads, groups, size

    def repeated(self, x):
        batch, groups, length, size = x.shape
        each = self.heads // self.groups
        x = x.unsqueeze(2).expand(batch, groups, each, length, size)
        return x.reshape(batch, groups * each, length, size)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        h = self.norm1(x)
        q = self.q(h).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k(h).view(batch, length, self.groups, self.size).transpose(1, 2)
        v = self.v(h).view(batch, length, self.groups, self.size).transpose(1, 2)
        q = rotate(q, cos, sin)
        k = rotate(k, cos, sin)
        k = self.repeated(k)
        v = self.repeated(v)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        del q, k, v
        h = h.transpose(1, 2).reshape(batch, length, width)
        h = self.o(h)
        x = x + h
        h = self.norm2(x)
        gate = self.gate(h)
        gate = F.silu(gate)
        h = self.up(h)
        h = gate * h
        del gate
        h = self.down(h)
        return x + h


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.token = nn.Embedding(c["vocabulary"], c["width"])
        self.blocks = nn.ModuleList(LlamaBlock(c) for _ in range(c["layers"]))
        self.norm = RmsNorm(c["width"])
        self.head = nn.Linear(c["width"], c["vocabulary"], bias=False)
        self.size = c["width"] // c["heads"]
        self.inputs = [ints(c["batch"], c["length"], below=c["vocabulary"])] * 2

    def loss(self, tokens, target):
        x = self.token(tokens)
        places = torch.arange(tokens.size(1), device=tokens.device, dtype=torch.float32)
        rates = torch.arange(0, self.size, 2, device=tokens.device, dtype=torch.float32)
        rates = torch.pow(10000.0, rates * (-1.0 / self.size))
        angles = torch.outer(places, rates)
        angles = torch.cat((angles, angles), -1)
        cos = angles.cos().to(x.dtype)
        sin = angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        x = self.norm(x)
        x = self.head(x)
        x = x.to(torch.float32)
        return F.cross_entropy(x.view(-1, x.size(-1)), target.view(-1))


class EncoderDecoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, heads = c["width"], c["heads"]
        self.token = nn.Embedding(c["vocabulary"], width)
        self.place = nn.Embedding(c["length"], width)
        self.encoder = nn.ModuleList(Block(width, heads, False, 0) for _ in range(c["layers"]))
        self.decoder = nn.ModuleList(Block(width, heads, True, 0, across=True)
                                     for _ in range(c["layers"]))
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.head = nn.Linear(width, c["vocabulary"], bias=False)
        self.inputs = [ints(c["batch"], c["length"], below=c["vocabulary"])] + \
            [ints(c["batch"], c["target"], below=c["vocabulary"])] * 2

    def embedded(self, tokens):
        places = torch.arange(tokens.size(1), device=tokens.device)
        x = F.embedding(tokens, self.token.weight)  # MemTracker counts no module twice a step
        h = F.embedding(places, self.place.weight)
        return x + h

    def loss(self, tokens, before, target):
        memory = self.embedded(tokens)
        for block in self.encoder:
            memory = block(memory)
        memory = self.norm1(memory)
        x = self.embedded(before)
        for block in self.decoder:
            x = block(x, memory)
        x = self.norm2(x)
        x = self.head(x)
        return F.cross_entropy(x.view(-1, x.size(-1)), target.view(-1))


class Rnn(nn.Module):
    def __init__(self, c):
        super().__init__()
        kind = nn.LSTM if c.get("lstm") else nn.GRU
        self.token = nn.Embedding(c["vocabulary"], c["width"])
        self.cells = kind(c["width"], c["width"], c["layers"], batch_first=True)
        self.head = nn.Linear(c["width"], c["vocabulary"])
        self.inputs = [ints(c["batch"], c["length"], below=c["vocabulary"])] * 2

    def loss(self, tokens, target):
        x = self.token(tokens)
        x = self.cells(x)[0]
        x = self.head(x)
        return F.cross_entropy(x.view(-1, x.size(-1)), target.view(-1))


class Experts(nn.Module):
    """Tokens choose experts, each expert takes the tokens that want it most: shapes are fixed."""

    def __init__(self, c):
        super().__init__()
        width, experts = c["width"], c["experts"]
        self.norm = nn.LayerNorm(width)
        self.router = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.full((experts, width, 2 * width), 1 / width))
        self.down = nn.Parameter(torch.full((experts, 2 * width, width), 1 / width))
        nn.init.normal_(self.up, 0, 0.02)
        nn.init.normal_(self.down, 0, 0.02)
        self.chosen = c["chosen"]

    def forward(self, x):
        tokens, experts = x.size(0), self.router.out_features
        capacity = tokens * self.chosen // experts
        h = self.norm(x)
        weights = self.router(h)
        weights = torch.softmax(weights, -1)
        best, which = weights.topk(self.chosen, -1)
        weights = torch.zeros_like(weights).scatter(1, which, best)
        del best, which
        share, index = weights.t().topk(capacity, 1)
        index = index.reshape(-1)
        h = h.index_select(0, index)
        h = h.view(experts, capacity, -1)
        h = torch.bmm(h, self.up)
        h = F.gelu(h)
        h = torch.bmm(h, self.down)
        h = h * share.unsqueeze(-1)
        h = h.view(experts * capacity, -1)
        return x.index_add(0, index, h)


class Moe(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.token = nn.Embedding(c["vocabulary"], c["width"])
        self.layers = nn.ModuleList(Experts(c) for _ in range(c["layers"]))
        self.head = nn.Linear(c["width"], c["vocabulary"], bias=False)
        self.inputs = [ints(c["batch"], c["length"], below=c["vocabulary"])] * 2

    def loss(self, tokens, target):
        x = self.token(tokens.view(-1))
        for layer in self.layers:
            x = layer(x)
        x = self.head(x)
        return F.cross_entropy(x, target.view(-1))


class Text(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.token = nn.Embedding(c["vocabulary"], c["width"])
        self.bag = nn.EmbeddingBag(c["vocabulary"], c["width"], mode="mean")
        self.conv = nn.Conv1d(c["width"], c["filters"], 5, padding=2)
        self.head = nn.Linear(c["filters"] + c["width"], c["classes"])
        self.inputs = [ints(c["batch"], c["length"], below=c["vocabulary"]),
                       ints(c["batch"], below=c["classes"])]

    def loss(self, tokens, target):
        x = self.token(tokens)
        x = x.transpose(1, 2)
        x = self.conv(x)
        x = torch.tanh(x)
        x = x.amax(-1)
        h = self.bag(tokens)
        x = torch.cat((x, h), -1)
        del h
        x = self.head(x)
        return F.cross_entropy(x, target)
