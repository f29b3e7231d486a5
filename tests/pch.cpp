// Compiled once with torch/torch.h, 16 s of work; the engine's tests reuse it.
