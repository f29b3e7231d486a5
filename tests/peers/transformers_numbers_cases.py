"""The tiny models of transformers_numbers.py: each model type and task, and what a config can say
that changes numbers."""

NO_DROPOUT = {
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "gpt_neo": {"classifier_dropout": 0.0},
    "gpt_neox": {"classifier_dropout": 0.0},
    "opt": {"dropout": 0.0},
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "roberta": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "distilbert": {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0},
    "t5": {"dropout_rate": 0.0},
}

LLAMA = {"vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BERT = {"vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 24}
VIT = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
       "image_size": 16, "patch_size": 4, "num_labels": 5}
SIZES = {
    "gpt2": {"vocab_size": 61, "n_positions": 24, "n_embd": 16, "n_layer": 2, "n_head": 4,
             "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
    "gpt_neo": {"vocab_size": 61, "max_position_embeddings": 24, "hidden_size": 16,
                "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
                "window_size": 4, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
    "opt": {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "ffn_dim": 24,
            "max_position_embeddings": 24, "num_attention_heads": 4, "word_embed_proj_dim": 16},
    "llama": LLAMA,
    "mistral": LLAMA | {"sliding_window": None},
    "qwen2": LLAMA,
    "qwen3": LLAMA | {"head_dim": 8},
    "gemma": LLAMA | {"head_dim": 8},
    "gemma2": LLAMA | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4},
    "phi": LLAMA,
    "phi3": LLAMA | {"original_max_position_embeddings": 32},
    "mixtral": LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt_neox": {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2,
                 "num_attention_heads": 2, "intermediate_size": 24, "rotary_pct": 0.25,
                 "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2,
                 "pad_token_id": 0},
    "bert": BERT,
    "roberta": BERT,
    "distilbert": {"vocab_size": 61, "max_position_embeddings": 24, "n_layers": 2, "n_heads": 4,
                   "dim": 16, "hidden_dim": 24},
    "t5": {"vocab_size": 61, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4,
           "relative_attention_num_buckets": 6, "relative_attention_max_distance": 8,
           "decoder_start_token_id": 0},
    "vit": VIT,
    "deit": VIT,
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2],
               "layer_type": "bottleneck", "num_labels": 5},
    "convnext": {"hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2, "patch_size": 2,
                 "num_labels": 5},
}
IMAGES = ("vit", "deit", "resnet", "convnext")
CAUSAL = ("gpt2", "gpt_neo", "opt", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi",
          "phi3", "mixtral", "gpt_neox")


def case(name, model_type, task, masks=None, labels=None, **changes):
    made = {"name": name, "task": task,
            "config": {"model_type": model_type} | SIZES[model_type] |
                      NO_DROPOUT.get(model_type, {}) | changes}
    if model_type in IMAGES:
        made["image"] = made["config"].get("image_size", 20)
    if masks:
        made["masks"] = masks
    if labels:
        made["labels"] = labels
    return made


def classifier(model_type, **changes):
    return case(model_type + "-classifier", model_type, "sequence-classification",
                **{"num_labels": 3, **changes})


SHORT = ("none", "left")
LONG_ROPE = {"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0]}
LLAMA_3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}

CASES = [case(name, name, "causal-lm") for name in CAUSAL]
CASES += [case(name, name, "masked-lm") for name in ("bert", "roberta", "distilbert")]
CASES += [case("t5", "t5", "seq2seq-lm")]
CASES += [case(name, name, "image-classification") for name in IMAGES]
INITIALISED = [each["name"] for each in CASES]
CASES += [classifier(name) for name in CAUSAL + ("bert", "roberta", "distilbert")]
CASES += [
    # Options of single model types.
    case("gpt2-scaled-by-layer", "gpt2", "causal-lm", SHORT, reorder_and_upcast_attn=True,
         scale_attn_by_inverse_layer_idx=True, n_inner=40, activation_function="relu"),
    case("gpt2-untied", "gpt2", "causal-lm", SHORT, tie_word_embeddings=False,
         scale_attn_weights=False),
    case("gpt2-one-label", "gpt2", "sequence-classification", SHORT, "real", num_labels=1),
    case("opt-350m", "opt", "causal-lm", SHORT, do_layer_norm_before=False, word_embed_proj_dim=8),
    case("opt-without-bias", "opt", "causal-lm", SHORT, enable_bias=False,
         _remove_final_layer_norm=True),
    case("llama-3-rope", "llama", "causal-lm", SHORT, rope_scaling=LLAMA_3_ROPE,
         tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    case("llama-yarn", "llama", "causal-lm", SHORT, rope_scaling=YARN),
    case("llama-linear", "llama", "causal-lm", SHORT,
         rope_scaling={"rope_type": "linear", "factor": 2.0}),
    case("llama-dynamic", "llama", "causal-lm", SHORT, max_position_embeddings=4,
         rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
    case("mistral-window", "mistral", "causal-lm", sliding_window=4),
    case("qwen2-window", "qwen2", "causal-lm", SHORT, use_sliding_window=True, sliding_window=4,
         max_window_layers=1, tie_word_embeddings=True),
    case("qwen3-layer-types", "qwen3", "causal-lm", SHORT, use_sliding_window=True,
         sliding_window=4, layer_types=["sliding_attention", "full_attention"],
         attention_bias=True),
    case("gemma2-uncapped", "gemma2", "causal-lm", SHORT, attn_logit_softcapping=None,
         final_logit_softcapping=None),
    case("phi-normalised-heads", "phi", "causal-lm", SHORT, qk_layernorm=True,
         num_key_value_heads=None),
    case("phi3-long-rope", "phi3", "causal-lm", SHORT, rope_scaling=LONG_ROPE,
         original_max_position_embeddings=4, sliding_window=5),
    case("mixtral-balanced", "mixtral", "causal-lm", output_router_logits=True,
         router_aux_loss_coef=0.1, sliding_window=4),
    case("gpt-neox-in-turn", "gpt_neox", "causal-lm", SHORT, use_parallel_residual=False,
         attention_bias=False, tie_word_embeddings=True, rotary_pct=1.0),
    case("bert-decoder", "bert", "causal-lm", is_decoder=True),
    case("bert-untied", "bert", "masked-lm", SHORT, tie_word_embeddings=False,
         hidden_act="gelu_new"),
    case("bert-many-labels", "bert", "sequence-classification", SHORT, "real", num_labels=3,
         problem_type="multi_label_classification"),
    case("roberta-decoder", "roberta", "causal-lm", SHORT, is_decoder=True),
    case("distilbert-sines", "distilbert", "masked-lm", SHORT, sinusoidal_pos_embds=True,
         activation="relu", tie_word_embeddings=False),
    case("t5-gated", "t5", "seq2seq-lm", SHORT, feed_forward_proj="gated-gelu",
         tie_word_embeddings=False, num_decoder_layers=1),
    case("vit-without-bias", "vit", "image-classification", qkv_bias=False, hidden_act="relu"),
    case("resnet-basic", "resnet", "image-classification", layer_type="basic",
         downsample_in_first_stage=True),
    case("resnet-downsampled", "resnet", "image-classification", downsample_in_bottleneck=True),
]
INITIALISED += ["distilbert-sines", "t5-gated", "opt-350m", "gpt2-untied"]
