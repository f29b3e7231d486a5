"""The newest families of transformers 5, small, built from their configs: experts by grouped and by batched
products, latent and windowed attention, state spaces, pictures beside text."""
import torch
import transformers

from zoo.training import HubTraining, images, labels, predicted

TOKENS = 2000
ROWS, LENGTH = 2, 256
# What nearly all of them have in common.
DECODER = {"vocab_size": TOKENS, "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8,
           "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 512, "max_position_embeddings": 512,
           "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
EXPERTS = {"num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
LATENT = {"kv_lora_rank": 64, "q_lora_rank": 96, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32,
          "v_head_dim": 32, "head_dim": 16, "num_key_value_heads": 8, "n_routed_experts": 8, "n_group": 2,
          "topk_group": 1, "first_k_dense_replace": 1}
VISION = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
          "image_size": 56, "patch_size": 14}


def config_of(kind, values):
    """Of this model type: what its config class knows of these values."""
    config = transformers.CONFIG_MAPPING[kind]
    known = config().to_dict()
    return config(**{key: value for key, value in values.items()
                     if key in known or key in config.attribute_map})


def causal(kind, dtype=torch.float32, experts=None, checkpointing=False, **values):
    config = config_of(kind, {**DECODER, **EXPERTS, **values})
    if experts:
        config._experts_implementation = experts
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    return HubTraining(model, labels(ROWS, LENGTH, below=TOKENS), loss=predicted)


def masked(kind, **values):
    model = transformers.AutoModelForMaskedLM.from_config(config_of(kind, {**DECODER, **values})).train()
    return HubTraining(model, labels(ROWS, LENGTH, below=TOKENS), loss=predicted)


def seen(model, ids, pixels, *rest):
    names = ("image_grid_thw",)[:len(rest)]
    return model(input_ids=ids, pixel_values=pixels, labels=ids, **dict(zip(names, rest))).loss


def with_pictures(config, places, *pixels):
    """`places` of the first tokens of each row stand for the picture."""
    model = transformers.AutoModelForImageTextToText.from_config(config).train()
    ids = torch.cat((torch.full((ROWS, places), config.image_token_id),
                     labels(ROWS, LENGTH - places, below=TOKENS - 10)), 1)
    return HubTraining(model, ids, *pixels, loss=seen)


def llava():
    config = transformers.LlavaConfig(
        text_config=config_of("llama", DECODER), vision_config=config_of("clip_vision_model", VISION),
        image_token_id=TOKENS - 1)
    return with_pictures(config, 16, images(ROWS, 56))


def gemma3_with_pictures():
    config = transformers.Gemma3Config(
        text_config=config_of("gemma3_text", {**DECODER, "sliding_window": 64}),
        vision_config=config_of("siglip_vision_model", VISION), mm_tokens_per_image=16,
        image_token_index=TOKENS - 1, boi_token_index=TOKENS - 2, eoi_token_index=TOKENS - 3)
    return with_pictures(config, 16, images(ROWS, 56))


def described(model, ids, pixels):
    return model(input_ids=ids, pixel_values=pixels, return_loss=True).loss


def clip():
    config = transformers.CLIPConfig(
        text_config=config_of("clip_text_model", {**DECODER, "max_position_embeddings": LENGTH}).to_dict(),
        vision_config=config_of("clip_vision_model", VISION).to_dict())
    return HubTraining(transformers.CLIPModel(config).train(), labels(8, 64, below=TOKENS), images(8, 56),
                       loss=described)


def transcribed(model, sound, ids):
    return model(input_features=sound, labels=ids).loss


def whisper():
    config = transformers.WhisperConfig(
        vocab_size=TOKENS, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256, max_source_positions=200,
        max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    return HubTraining(transformers.WhisperForConditionalGeneration(config).train(),
                       torch.randn(ROWS, 80, 400), labels(ROWS, 48, below=TOKENS), loss=transcribed)


CASES = {
    "qwen3": lambda: causal("qwen3"),
    "qwen3_bf16_checkpointed": lambda: causal("qwen3", torch.bfloat16, checkpointing=True),
    "qwen3_moe": lambda: causal("qwen3_moe"),
    "qwen3_moe_bf16": lambda: causal("qwen3_moe", torch.bfloat16),
    "qwen3_moe_batched": lambda: causal("qwen3_moe", experts="batched_mm"),
    "qwen3_moe_checkpointed": lambda: causal("qwen3_moe", checkpointing=True),
    "qwen2_moe": lambda: causal("qwen2_moe", shared_expert_intermediate_size=256),
    "qwen3_next": lambda: causal("qwen3_next", num_hidden_layers=4, linear_num_key_heads=4,
                                 linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32,
                                 shared_expert_intermediate_size=128),
    "mixtral": lambda: causal("mixtral"),
    "mixtral_with_router_loss": lambda: causal("mixtral", output_router_logits=True),
    "olmoe": lambda: causal("olmoe"),
    "granite_moe": lambda: causal("granitemoe"),
    "glm4_moe": lambda: causal("glm4_moe", n_routed_experts=8, first_k_dense_replace=1),
    "deepseek_v3": lambda: causal("deepseek_v3", **LATENT),
    "llama4": lambda: causal("llama4_text", num_hidden_layers=4, intermediate_size=128,
                             intermediate_size_mlp=512, attention_chunk_size=128),
    "gpt_oss": lambda: causal("gpt_oss", intermediate_size=256, sliding_window=64, num_hidden_layers=2),
    "gemma3": lambda: causal("gemma3_text", num_hidden_layers=6, sliding_window=64),
    "smollm3": lambda: causal("smollm3", num_hidden_layers=4),
    "phi3": lambda: causal("phi3"),
    "mamba2": lambda: causal("mamba2", num_heads=16, head_dim=32, state_size=32, n_groups=2, chunk_size=64),
    "modernbert": lambda: masked("modernbert", num_hidden_layers=4, local_attention=64),
    "llava": llava,
    "gemma3_with_pictures": gemma3_with_pictures,
    "clip": clip,
    "whisper": whisper,
}
