import torch
from transformers import GPT2Config, GPT2LMHeadModel

net = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=5000, n_positions=256)).cuda()
net.train()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
ids = torch.randint(5000, (8, 256)).cuda()
for _ in range(9):
    loss = net(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
