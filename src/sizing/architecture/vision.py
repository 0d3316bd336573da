"""Encoders of images and sound in front of a text model: how many weights they have.

One function a family, chosen by the model types that the config names; a family that is not known is counted as
a plain vision transformer (Dosovitskiy et al. 2021) with a two-layer projector, and a warning says so.
"""

from collections.abc import Callable

from sizing.architecture.config import Config
from sizing.architecture.model import Tower

Family = Callable[[Config, Config, int], int]

WIDTH = ("embed_dim", "hidden_size", "vt_hidden_size", "width", "d_model", "n_embd")
DEPTH = (
    "depth",
    "encoder_layers",
    "num_hidden_layers",
    "vt_num_hidden_layers",
    "layers",
    "num_layers",
    "conf_num_hidden_layers",
)
INNER = ("encoder_ffn_dim", "intermediate_size", "vt_intermediate_size")
#: Llama 4's tower as its checkpoints ship it: 34 layers, 1408 wide (published total less the text model).
LLAMA4_TOWER = 871_932_416
#: Gemma 3n's tower with its projections (published total less the text and sound models).
MOBILENET_V5 = 327_887_424


def blocks(
    width: int, inner: int, depth: int, *, gated: bool, attention_bias: int = 4, mlp_bias: bool = True, norm: int = 4
) -> int:
    """Elements of a vision transformer's blocks. [element]

    Parameters
    ----------
    width, inner, depth
        Model width, feed-forward width, number of blocks.
    gated
        Whether the feed-forward has three matrices.
    attention_bias
        How many of the four attention matrices have a bias.
    mlp_bias
        Whether the feed-forward has biases.
    norm
        Elements of norms a block, in units of the width.
    """
    matrices = 4 * width * width + (3 if gated else 2) * width * inner
    biases = attention_bias * width + (((2 if gated else 1) * inner + width) if mlp_bias else 0)
    return depth * (matrices + biases + norm * width)


def _shape(vision: Config) -> tuple[int, int, int]:
    width = vision.integer(*WIDTH, default=1024)
    depth = vision.integer(*DEPTH, default=24, kind="layers")
    inner = vision.integer(*INNER, default=0, low=0, kind="intermediate")
    return width, inner or int(width * vision.number("mlp_ratio", default=4.0)), depth


def _patch(vision: Config, default: int = 14) -> int:
    """Pixels of the side of a patch."""
    size = vision.get("patch_size", "spatial_patch_size")
    if isinstance(size, list) and size:
        return Config({"patch_size": size[0]}).integer("patch_size", kind="small")
    return vision.integer("patch_size", "spatial_patch_size", default=default, kind="small")


def _patches(vision: Config) -> int:
    size = vision.get("image_size")
    side = Config({"image_size": size[0]}) if isinstance(size, list) and size else vision
    return (side.integer("image_size", default=224, kind="positions") // _patch(vision)) ** 2


def _pixels(vision: Config, temporal: int = 1) -> int:
    channels = vision.integer("in_channels", "in_chans", "num_channels", default=3, kind="small")
    return channels * temporal * _patch(vision) ** 2


def _qwen(vision: Config, top: Config, text: int) -> int:
    """Qwen2-VL and Qwen2.5-VL."""
    width, inner, depth = _shape(vision)
    newer = vision.has("fullatt_block_indexes", "window_size")
    out = vision.integer("out_hidden_size", default=text) if newer else text
    if vision.has("embed_dim"):  # Qwen2-VL: the tower's hidden_size is the width it ends in
        out = vision.integer("hidden_size", default=text)
    merged = width * vision.integer("spatial_merge_size", default=2, kind="small") ** 2
    body = blocks(width, inner, depth, gated=newer, norm=2 if newer else 4)
    merger = width * (1 if newer else 2) + merged * merged + merged + merged * out + out
    return body + width * _pixels(vision, vision.integer("temporal_patch_size", default=2, kind="small")) + merger


def _qwen3(vision: Config, top: Config, text: int) -> int:
    """Qwen3-VL and Qwen3.5: learned positions, and a merger for each tapped block."""
    width, inner, depth = _shape(vision)
    merged = width * vision.integer("spatial_merge_size", default=2, kind="small") ** 2
    out = vision.integer("out_hidden_size", default=text)
    project = merged * merged + merged + merged * out + out
    taps = len(vision.items("deepstack_visual_indexes") or [])
    patch = width * _pixels(vision, vision.integer("temporal_patch_size", default=2, kind="small")) + width
    positions = vision.integer("num_position_embeddings", default=0, low=0) * width
    body = blocks(width, inner, depth, gated=False)
    return body + patch + positions + project + 2 * width + taps * (project + 2 * merged)


def _siglip_body(vision: Config, *, pooled: bool = False) -> int:
    """SigLIP (Zhai et al. 2023); ``pooled`` is what holds of its pooling head when the config does not say."""
    width, inner, depth = _shape(vision)
    body = blocks(width, inner, depth, gated=False) + width * _pixels(vision) + width
    if vision.flag("vision_use_head", default=pooled):
        body += blocks(width, inner, 1, gated=False, norm=2) + width
    return body + _patches(vision) * width + 2 * width


def _gemma3(vision: Config, top: Config, text: int) -> int:
    """SigLIP and a projection with a norm (Gemma 3)."""
    width = _shape(vision)[0]
    return _siglip_body(vision) + width * text + width


def _paligemma(vision: Config, top: Config, text: int) -> int:
    """SigLIP and a projection with a bias (PaliGemma)."""
    return _siglip_body(vision) + _shape(vision)[0] * text + text


def _idefics(vision: Config, top: Config, text: int) -> int:
    """SigLIP and a projection of shuffled pixels (Idefics 3, SmolVLM)."""
    scale = top.integer("scale_factor", default=2, kind="small")
    return _siglip_body(vision) + _shape(vision)[0] * scale * scale * text


def _gemma4(vision: Config, top: Config, text: int) -> int:
    """Gemma 4: gated, four norms and query and key norms a block, two position tables."""
    width, inner, depth = _shape(vision)
    head = vision.integer("head_dim", default=64, kind="head_dim")
    table = 2 * vision.integer("position_embedding_size", default=10_240, kind="positions") * width
    body = blocks(width, inner, depth, gated=True, attention_bias=0, mlp_bias=False) + depth * 2 * head
    standard = 2 * width if vision.flag("standardize") else 0
    return body + table + width * _pixels(vision) + width * text + standard


def _pixtral(vision: Config, top: Config, text: int) -> int:
    """Pixtral, with Mistral 3's patch merger or LLaVA's projector."""
    width, inner, depth = _shape(vision)
    body = blocks(width, inner, depth, gated=True, attention_bias=0, mlp_bias=False, norm=2)
    body += width * _pixels(vision) + width
    bias = top.flag("multimodal_projector_bias", default=not top.has("spatial_merge_size"))
    projector = width * text + text * text + (2 * text if bias else 0)
    if top.has("spatial_merge_size"):
        merge = top.integer("spatial_merge_size", default=2, kind="small") ** 2
        projector += width + merge * width * width
    return body + projector


def _moonvit(vision: Config, top: Config, text: int) -> int:
    """MoonViT (Kimi-VL, Kimi-K2.5) and its projector."""
    width, inner, depth = _shape(vision)
    rows = vision.integer("init_pos_emb_height", "pos_emb_height", default=64, kind="small")
    columns = vision.integer("init_pos_emb_width", "pos_emb_width", default=64, kind="small")
    out = vision.integer("text_hidden_size", default=text)
    merged = 4 * width
    body = blocks(width, inner, depth, gated=False) + width * _pixels(vision) + width
    projector = 2 * width + merged * merged + merged + merged * out + out
    return body + rows * columns * width + 2 * width + projector


def _clip(vision: Config, top: Config, text: int) -> int:
    """CLIP or SigLIP with LLaVA's two-layer projector."""
    width, inner, depth = _shape(vision)
    if "siglip" in vision.text("model_type"):
        body = _siglip_body(vision, pooled=True)
    else:
        body = blocks(width, inner, depth, gated=False) + width * _pixels(vision) + width
        body += (_patches(vision) + 1) * width + 4 * width
    taps = top.get("vision_feature_layer")
    wide = width * (len(taps) if isinstance(taps, list) and taps else 1)
    projector = wide * text + text + text * text + text
    newline = text if "next" in top.text("model_type") or "onevision" in top.text("model_type") else 0
    return body + projector + newline


def _internvl(vision: Config, top: Config, text: int) -> int:
    """InternViT with layer scales, and a projector of shuffled pixels."""
    width, inner, depth = _shape(vision)
    bias = 4 if vision.flag("attention_bias", "qkv_bias") else 1
    body = blocks(width, inner, depth, gated=False, attention_bias=bias, norm=6)
    body += width * _pixels(vision) + width + (_patches(vision) + 2) * width
    merged = 4 * width
    return body + 2 * merged + merged * text + text + text * text + text


def _glm4v(vision: Config, top: Config, text: int) -> int:
    """GLM-4.1V: no biases, a convolution that merges patches, a gated merger."""
    width, _, depth = _shape(vision)
    out = vision.integer("out_hidden_size", default=text)
    inner = vision.integer("intermediate_size", default=13_696, kind="intermediate")
    merge = vision.integer("spatial_merge_size", default=2, kind="small") ** 2
    body = blocks(width, out, depth, gated=True, attention_bias=0, mlp_bias=False, norm=2)
    body += width * _pixels(vision, vision.integer("temporal_patch_size", default=2, kind="small")) + width
    body += _patches(vision) * width + 2 * width
    return body + width * out * merge + out + out * out + 2 * out + 3 * out * inner


def _mllama(vision: Config, top: Config, text: int) -> int:
    """Llama 3.2 Vision: local and gated global blocks, embeddings of tiles and aspect ratios."""
    width, inner, depth = _shape(vision)
    gated = vision.integer("num_global_layers", default=8, low=0, kind="layers")
    tiles = vision.integer("max_num_tiles", default=4, kind="small")
    ratios = vision.items("supported_aspect_ratios")
    rows = (len(ratios) if ratios else 8) + 1
    places = _patches(vision) + 1
    body = blocks(width, inner, depth + gated, gated=False, attention_bias=0) + 2 * gated
    body += width * _pixels(vision) + width + places * width + 1 + 4 * width
    body += rows * tiles * width * (places + 2) + 2
    return body + vision.integer("vision_output_dim", default=7680) * text + text


def _cohere(vision: Config, top: Config, text: int) -> int:
    """SigLIP and a gated projection of shuffled pixels (Aya Vision, Command A Vision)."""
    merged = _shape(vision)[0] * top.integer("downsample_factor", default=2, kind="small") ** 2
    inner = top.integer("alignment_intermediate_size", default=36_864, kind="intermediate")
    return _siglip_body(vision, pooled=True) + merged * inner + inner + inner // 2 * text + text


def _plain(vision: Config, top: Config, text: int) -> int:
    """A plain vision transformer and a two-layer projector."""
    width, inner, depth = _shape(vision)
    body = blocks(width, inner, depth, gated=False) + width * _pixels(vision) + _patches(vision) * width
    return body + width * text + text * text + 2 * text


#: Word in the vision tower's or the model's type -> family, first match wins.
FAMILIES: tuple[tuple[str, Family], ...] = (
    ("qwen3_vl", _qwen3), ("qwen3_5", _qwen3), ("qwen2_5_vl", _qwen), ("qwen2_vl", _qwen),
    ("qwen2_5_omni", _qwen), ("qwen3_omni", _qwen3), ("gemma4", _gemma4), ("gemma3", _gemma3),
    ("paligemma", _paligemma), ("idefics3", _idefics), ("smolvlm", _idefics), ("pixtral", _pixtral),
    ("kimi", _moonvit), ("moonvit", _moonvit), ("internvl", _internvl), ("intern_vit", _internvl),
    ("mllama", _mllama), ("cohere2_vision", _cohere), ("glm4v", _glm4v), ("glm46v", _glm4v), ("llava", _clip),
    ("clip", _clip),
)  # fmt: skip


def towers_of(top: Config, text_hidden: int, architecture: str) -> tuple[Tower, ...]:
    """Encoders that a config names.

    Parameters
    ----------
    top
        The outer level of the config.
    text_hidden
        Width of the text model, which projectors end in [element].
    architecture
        Class that the config names; a class for text alone has no tower.
    """
    found = []
    vision = top.level("vision_config", "vision_tower_config", "visual", "vit_config", "vision_encoder_config")
    if vision is not None and vision.raw:
        found.append(_tower(vision, top, text_hidden))
    elif top.text("model_type") == "llama4" and "ConditionalGeneration" in architecture:
        note = "vision_config is absent: the tower of the published checkpoints, 34 layers, 1408 wide"
        top.warn(note)
        found.append(Tower(name="vision", parameters=LLAMA4_TOWER, hidden_size=1408, layers=34, note=note))
    if top.has("encoder_layers", "encoder_ffn_dim") and top.has("decoder_layers"):
        found.append(_encoder(top))
    audio = top.level("audio_config", "audio_encoder_config", "speech_config")
    if audio is not None and audio.raw:
        found.append(_sound(audio, top, text_hidden))
    return tuple(found)


def _tower(vision: Config, top: Config, text: int) -> Tower:
    kind, model = vision.text("model_type"), top.text("model_type")
    if "llama4" in kind or "llama4" in model:
        return Tower(name="vision", parameters=LLAMA4_TOWER, hidden_size=1408, layers=34)
    if "gemma3n" in kind:
        note = "the tower of Gemma 3n is counted as MobileNet-V5-300M, as published"
        top.warn(note)
        return Tower(name="vision", parameters=MOBILENET_V5, hidden_size=2048, note=note)
    for word, family in FAMILIES:
        if word in kind or word in model:
            width, _, depth = _shape(vision)
            return Tower(name="vision", parameters=family(vision, top, text), hidden_size=width, layers=depth)
    width, _, depth = _shape(vision)
    note = f"vision tower of type {kind or model!r} is counted as a plain vision transformer with a projector"
    top.warn(note)
    return Tower(name="vision", parameters=_plain(vision, top, text), hidden_size=width, layers=depth, note=note)


def _encoder(top: Config) -> Tower:
    """The encoder of an encoder-decoder model."""
    width, _, depth = _shape(top)
    if top.text("model_type") == "whisper" or top.has("num_mel_bins"):
        parameters = whisper_encoder(top, positions=True)
    else:
        inner = top.integer("encoder_ffn_dim", default=4 * width, kind="intermediate")
        places = top.integer("max_position_embeddings", default=1024, kind="positions") + 2
        parameters = blocks(width, inner, depth, gated=False) + places * width + 2 * width
    return Tower(name="encoder", parameters=parameters, hidden_size=width, layers=depth)


def _sound(audio: Config, top: Config, text: int) -> Tower:
    width, _, depth = _shape(audio)
    kind = audio.text("model_type")
    if "gemma4" in kind or "gemma3n" in kind:
        return Tower(name="audio", parameters=_conformer(audio, text), hidden_size=width, layers=depth)
    whisper = any(word in kind for word in ("qwen2_audio", "whisper", "voxtral", "qwen2_5_omni"))
    note = "" if whisper else f"audio encoder of type {kind!r} is counted as Whisper's with one projection"
    if note:
        top.warn(note)
    parameters = whisper_encoder(audio, positions=True) + width * text + text
    return Tower(name="audio", parameters=parameters, hidden_size=width, layers=depth, note=note)


def whisper_encoder(audio: Config, *, positions: bool) -> int:
    """Elements of Whisper's encoder (Radford et al. 2022): two convolutions and a plain transformer. [element]

    Parameters
    ----------
    audio
        The level that sizes it.
    positions
        Whether its position table counts.
    """
    width, inner, depth = _shape(audio)
    mels = audio.integer("num_mel_bins", "n_mels", default=80, kind="small")
    front = 3 * width * (mels + width) + 2 * width
    table = audio.integer("max_source_positions", default=1500, kind="positions") * width if positions else 0
    return front + table + blocks(width, inner, depth, gated=False, attention_bias=3) + 2 * width


def _conformer(audio: Config, text: int) -> int:
    """Gemma 4's audio encoder: two feed-forwards, attention and a convolution a block (Gulati et al. 2020)."""
    width, _, depth = _shape(audio)
    heads = audio.integer("num_attention_heads", "conf_num_attention_heads", default=8, kind="heads")
    kernel = audio.integer("conv_kernel_size", "conf_conv_kernel_size", default=5, kind="small")
    channels = audio.items("subsampling_conv_channels", "sscp_conv_channel_size") or [128, 32]
    sizes = [Config({"c": channel}).integer("c", kind="small") for channel in channels[:2]]
    first, second = sizes if len(sizes) == 2 else (128, 32)
    block = 16 * width * width + 5 * width * width + 3 * width * width + width * (kernel + 9) + width // heads
    out = audio.integer("output_proj_dims", default=1536)
    front = 9 * first + first + 9 * first * second + second + second * 32 * width
    return depth * block + front + width * out + out + out * text
