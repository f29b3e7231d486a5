#!/usr/bin/env python3
"""Writes headroom/model/data/model_types.json: the keys of a config.json that transformers' models
read, with its defaults, for every model type Headroom builds.

  scripts/model_types.py > headroom/model/data/model_types.json

Runs with transformers, so in the virtual environment of scripts/peers.sh."""
import inspect
import json

import transformers
from transformers import CONFIG_MAPPING

MODEL_TYPES = ("gpt2 gpt_neo opt llama mistral qwen2 qwen3 gemma gemma2 phi phi3 mixtral gpt_neox bert "
               "roberta distilbert t5 vit deit resnet convnext").split()
# Keys that say how text is made or how another framework is served, not what the model is.
IGNORED = {"self", "kwargs", "bos_token_id", "eos_token_id", "use_cache", "pretraining_tp",
           "encoder_stride",
           "out_features", "out_indices", "qa_dropout", "cache_implementation", "use_bidirectional_attention"}
# Keys of every configuration that decide what is built.
OF_ALL = ("tie_word_embeddings", "pad_token_id", "problem_type", "chunk_size_feed_forward")

# Further general keys that decide what some of them are.
OF_SOME = {"bert": ("is_decoder", "add_cross_attention"),
           "roberta": ("is_decoder", "add_cross_attention"),
           "t5": ("decoder_start_token_id",)}


def defaults(configuration):
    signature = inspect.signature(configuration.__init__)
    own = {name: parameter.default for name, parameter in signature.parameters.items()
           if name not in IGNORED and not name.startswith("summary_")}
    made = configuration()
    own.update({name: getattr(made, name) for name in OF_ALL + OF_SOME.get(made.model_type, ())
                if name not in own})
    return own


def main():
    types = {}
    for model_type in MODEL_TYPES:
        configuration = CONFIG_MAPPING[model_type]
        types[model_type] = {"defaults": defaults(configuration),
                             "other_names": {value: key for key, value in
                                             sorted(configuration.attribute_map.items())}}
    print(json.dumps({"source": f"transformers {transformers.__version__}, configuration_*.py",
                      "types": types}, indent=1))


if __name__ == "__main__":
    main()
