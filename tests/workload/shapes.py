"""Shapes for the tests: small ones, and any that hypothesis thinks of."""

from typing import Any

from hypothesis import strategies as st

from dtk.workload.transformer import TransformerShape


def gpt(**sizes: Any) -> TransformerShape:
    defaults: dict[str, Any] = {
        "family": "gpt",
        "num_layers": 4,
        "hidden_size": 32,
        "num_heads": 4,
        "vocab_size": 100,
        "learned_positions": 64,
    }
    return TransformerShape.from_values(defaults | sizes)


@st.composite
def shapes(draw: st.DrawFn, *, tensor_parallel: int = 1) -> TransformerShape:
    """Any shape whose heads and MLP divide by the ranks; key and value heads may be fewer than these."""
    small = st.integers(1, 5)
    kv_heads, group = draw(small), draw(small)
    num_heads = kv_heads * group * tensor_parallel
    if draw(st.booleans()):
        kv_heads *= tensor_parallel
    elif tensor_parallel % kv_heads:
        kv_heads = 1
    return TransformerShape.from_values(
        {
            "family": draw(st.sampled_from(["gpt", "llama"])),
            "num_layers": draw(st.integers(1, 12)),
            "hidden_size": draw(st.integers(1, 40)),
            "num_heads": num_heads,
            "num_kv_heads": kv_heads,
            "head_dim": draw(st.integers(1, 9)),
            "ffn_size": draw(small) * tensor_parallel,
            "vocab_size": draw(st.integers(1, 300)),
            "vocab_multiple": draw(st.sampled_from([1, 7, 128])),
            "embedding_size": draw(st.none() | st.integers(1, 40)),
            "learned_positions": draw(st.integers(0, 9)),
            "norm": draw(st.sampled_from(["layer", "rms", "plain"])),
            "norms_per_layer": draw(st.integers(0, 4)),
            **{
                switch: draw(st.booleans())
                for switch in (
                    "tied_embeddings",
                    "gated",
                    "qkv_bias",
                    "projection_bias",
                    "ffn_bias",
                    "qk_norm",
                    "final_norm",
                )
            },
        }
    )
