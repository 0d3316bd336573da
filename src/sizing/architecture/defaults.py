"""What a config leaves out: the facts of its type, its class defaults, and what is assumed beyond them."""

from sizing.architecture.config import Config
from sizing.architecture.ends import POSITIONS, VOCABULARY
from sizing.architecture.kinds.attention import HEAD_DIM, HEADS, KV_HEADS
from sizing.architecture.kinds.dense import INTERMEDIATE
from sizing.architecture.kinds.moe import EXPERTS, SHARED, SHARED_WIDTH, TOP_K
from sizing.architecture.kinds.moe import WIDTH as MOE_WIDTH
from sizing.architecture.traits import Traits, traits_of
from sizing.errors import InputError

#: Types whose attention always has as many KV heads as query heads, or says otherwise in a field of its own.
_MULTI_HEAD = frozenset(
    {"gpt2", "gptj", "gpt_neo", "gpt_neox", "gpt_bigcode", "opt", "bloom", "mpt", "falcon", "codegen", "whisper",
     "bart", "qwen", "baichuan", "persimmon", "RefinedWeb", "RefinedWebModel", "jais", "minicpm"}
)  # fmt: skip
#: Class defaults that change sizes; a config that leaves one out is read with a note.
_NOTED = frozenset(
    {"num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "intermediate_size",
     "moe_intermediate_size", "num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok",
     "kv_lora_rank", "q_lora_rank", "sliding_window", "hidden_size", "num_hidden_layers", "first_k_dense_replace"}
)  # fmt: skip


def settled_traits(text: Config, top: Config) -> Traits:
    """Facts of the config's type; class defaults are put into ``text`` where it leaves fields out.

    Parameters
    ----------
    text, top
        The text level and the outer level; the first gains defaults and warnings.
    """
    model_type = text.text("model_type")
    traits = traits_of(model_type)
    if not traits.known:
        outer = top.text("model_type")
        traits = traits_of(outer) if outer != model_type else traits
    if not traits.known:
        text.warn(
            f"model type {model_type!r} is not known: biases, norms and ties are read as in Llama, layers from"
            " the fields that the config shares with known types"
        )
    if traits.refusal:
        raise InputError(f"models of type {model_type!r} can't be read yet: {traits.refusal}")
    if traits.caution:
        text.warn(f"model type {model_type!r}: {traits.caution}")
    defaults = {**traits.defaults, **traits.nested} if text.where else traits.defaults
    absent = {key: value for key, value in defaults.items() if key not in text.raw}
    absent = {key: value for key, value in absent.items() if not _spelled_otherwise(text, key)}
    if absent:
        text.raw = {**text.raw, **absent}
    noted = [f"{key} {absent[key]}" for key in sorted(_NOTED & set(absent))]
    if noted:
        text.warn(
            f"absent from the config, so the class defaults of {model_type or 'its type'} hold: {', '.join(noted)}"
        )
    _say_what_is_assumed(text, traits, model_type)
    return traits


def _say_what_is_assumed(text: Config, traits: Traits, model_type: str) -> None:
    """Warn of absent fields that change sizes where neither the config nor its type says."""
    if not traits.known and not text.has("tie_word_embeddings"):
        text.warn("tie_word_embeddings is absent: the output head is taken as a matrix of its own")
    says = (*KV_HEADS, "kv_lora_rank", "block_configs", "multi_query", "multi_query_attention", "compress_ratios")
    attends = traits.mixer not in {"encoder", "linear", "compressed"} and model_type not in _MULTI_HEAD
    if attends and not text.has(*says, *(f"{key}_per_layer" for key in KV_HEADS)):
        text.warn("num_key_value_heads is absent: one for each query head (multi-head attention)")


def _spelled_otherwise(text: Config, key: str) -> bool:
    """Whether the config gives the fact under another name, so that a class default must not."""
    for names in (
        HEADS,
        KV_HEADS,
        HEAD_DIM,
        EXPERTS,
        TOP_K,
        SHARED,
        SHARED_WIDTH,
        POSITIONS,
        MOE_WIDTH,
        INTERMEDIATE,
        VOCABULARY,
    ):
        if key in names:
            return any(name in text.raw for name in names if name != key)
    return False
