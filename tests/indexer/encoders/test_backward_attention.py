"""The strongest attention: equal to what eager attention shows when all maps are kept, and never keeps them itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.encoders.backbone import Backbone, load_backbone
from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.encoders.methods import resolve
from ragidx.indexer.encoders.pooling import look_back
from ragidx.indexer.models.locate import locate

from ...raising import message_of

Make = Callable[..., Path]

# A family, and what of its configuration makes its attention unlike that of the others.
FAMILIES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"num_key_value_heads": 1}),  # all heads share keys
    ("llama", {}),  # two heads share keys
    ("llama", {"head_dim": 24}),  # heads wider than the hidden state's share
    ("gpt2", {}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    ("gpt_neox", {}),
    ("opt", {}),
    ("gemma2", {"sliding_window": 3, "attn_logit_softcapping": 0.5}),
    ("gemma3_text", {"sliding_window": 3}),
    ("qwen2", {}),
    ("qwen3", {}),
    ("phi3", {"sliding_window": 3}),
    ("mistral", {"sliding_window": 3}),
    ("olmo2", {}),
    ("granite", {"attention_multiplier": 0.7}),
    ("falcon", {}),  # these have attention code of their own
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ("falcon", {"alibi": True}),
    ("falcon", {"multi_query": False}),
    ("gptj", {}),
    ("bloom", {}),
    ("mpt", {}),  # the last: it is always causal
]
IDS = torch.tensor([[5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15, 2, 2, 2]])
RIGHT = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
LEFT = RIGHT.flip(1)

pytestmark = pytest.mark.slow


def eager(folder: Path, ids: Tensor, mask: Tensor | None, *, both_ways: bool = False) -> tuple[Tensor, Tensor]:
    """(b, t, d) states and (b, t, t) the maximum over all of `output_attentions`, symmetrised."""
    from transformers import AutoModel

    from ragidx.indexer.encoders.backbone import attend_both_ways

    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    if both_ways:
        attend_both_ways(model)
    has_none = mask is None or model.config.model_type in {"bloom", "mpt"}  # ALiBi: no positions
    extra = {} if has_none else {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    with torch.inference_mode():
        out = model(ids, attention_mask=mask, output_attentions=True, use_cache=False, **extra)
    maps = torch.stack(out.attentions)  # layers, b, heads, t, t
    return out.last_hidden_state, ((maps + maps.transpose(-1, -2)) / 2).amax(dim=(0, 2))


def watching(folder: Path, **asked: Any) -> Backbone:
    files = locate(str(folder))
    return load_backbone(files, resolve(files, method="reba", **asked))


def between_tokens(strongest: Tensor, mask: Tensor | None) -> Tensor:
    """What of M lies between two tokens, neither of them padding."""
    if mask is None:
        return strongest
    real = mask.bool()
    return strongest * (real[:, :, None] & real[:, None, :])


@pytest.mark.parametrize(
    ("attention", "family", "config"),
    [("causal", *family) for family in FAMILIES] + [("bidirectional", *family) for family in FAMILIES[:-1]],
    ids=str,
)
def test_it_is_the_maximum_of_what_eager_attention_shows(
    attention: str, family: str, config: dict[str, Any], tiny_model: Make
) -> None:
    folder = tiny_model(family, **config)
    backbone = watching(folder, attention=attention)

    for ids, mask in ((IDS[:1], None), (IDS, RIGHT), (IDS.flip(1), LEFT)):
        states, strongest = backbone.states_and_attention(ids, mask)

        their_states, theirs = eager(folder, ids, mask, both_ways=attention == "bidirectional")
        assert strongest.shape == (len(ids), 7, 7)
        assert strongest.dtype == torch.float32
        torch.testing.assert_close(between_tokens(strongest, mask), between_tokens(theirs, mask), atol=1e-6, rtol=0)
        real = torch.ones_like(ids).bool() if mask is None else mask.bool()
        scale = float(their_states[real].abs().max())
        torch.testing.assert_close(states[real] / scale, their_states[real] / scale, atol=1e-5, rtol=0)


def test_the_windows_of_these_families_are_really_there(tiny_model: Make) -> None:
    for family in ("gemma2", "gemma3_text", "phi3", "mistral"):
        narrow, wide = (eager(tiny_model(family, sliding_window=n), IDS[:1], None)[1] for n in (3, 100))

        assert not torch.allclose(narrow, wide, atol=1e-3), family


def test_known_values_by_hand(tiny_model: Make) -> None:
    """M[i, j] is half of what j pays to i for j > i, all that a token pays to itself, and the same both ways round."""
    folder = tiny_model("llama")
    _, strongest = watching(folder).states_and_attention(IDS[:1], None)
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        maps = torch.cat(model(IDS[:1], output_attentions=True).attentions)  # layers, heads, t, t
    for i in range(7):
        for j in range(i, 7):
            paid = max(float(one[j, i]) for layer in maps for one in layer)
            expected = paid if i == j else paid / 2
            assert float(strongest[0, i, j]) == pytest.approx(expected, abs=1e-6)
            assert float(strongest[0, j, i]) == float(strongest[0, i, j])
    assert float(strongest[0, 0, 0]) == 1.0  # the first token sees none but itself


def test_layers_that_are_not_run_are_not_watched(tiny_model: Make) -> None:
    from transformers import AutoModel

    folder = tiny_model("llama")
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        first = model(IDS[:1], output_attentions=True).attentions[0]

    _, strongest = watching(folder, layer=1).states_and_attention(IDS[:1], None)

    torch.testing.assert_close(strongest, ((first + first.transpose(-1, -2)) / 2).amax(dim=1))


def test_padding_is_no_later_token_and_gets_nothing_back(tiny_model: Make) -> None:
    backbone = watching(tiny_model("gpt2"))
    _, alone = backbone.states_and_attention(IDS[1:, :4], None)
    _, padded = backbone.states_and_attention(IDS, RIGHT)

    back = look_back(padded, RIGHT)[1]

    torch.testing.assert_close(back[:4, :4], look_back(alone, None)[0], atol=1e-6, rtol=0)
    assert not back[:, 4:].any()
    assert not torch.triu(torch.ones(7, 7)).logical_not().mul(back).any()  # nor is an earlier one


class _Sizes(TorchDispatchMode):
    """Remembers how many numbers each tensor that is made or returned by any operation holds."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(one, Tensor):
                self.largest = max(self.largest, one.untyped_storage().nbytes() // one.element_size())
        return out


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_no_tensor_holds_more_than_one_map_a_text(family: str, padded: bool, tiny_model: Make) -> None:
    b, n, heads = 2, 128, 4
    ids = torch.arange(b * n).view(b, n) % 290
    mask = torch.ones(b, n, dtype=torch.int64)
    if padded:
        mask[1, -9:] = 0
    backbone = watching(tiny_model(family))

    with torch.inference_mode(), _Sizes() as ours:
        backbone.states_and_attention(ids, mask if padded else None)

    assert b * n * n <= ours.largest < heads * n * n
    assert ours.largest == b * n * n
    with _Sizes() as theirs:
        eager(tiny_model(family), ids, mask if padded else None)
    assert theirs.largest >= b * heads * n * n  # what is measured would show it


def test_a_model_that_is_watched_computes_as_one_that_is_not(tiny_model: Make) -> None:
    files = locate(str(tiny_model("llama")))
    plain, ours = (load_backbone(files, resolve(files, method=method)) for method in ("classical", "reba"))

    torch.testing.assert_close(ours.states(IDS, RIGHT)[RIGHT.bool()], plain.states(IDS, RIGHT)[RIGHT.bool()])
    assert files.name == str(tiny_model("llama"))


def test_half_precision_is_watched_in_float32(tiny_model: Make) -> None:
    files = locate(str(tiny_model("llama")))
    spec = resolve(files, method="reba")
    exact, half = (load_backbone(files, spec, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))

    states, strongest = half.states_and_attention(IDS[:1], None)

    assert (states.dtype, strongest.dtype) == (torch.bfloat16, torch.float32)
    assert float((strongest - exact.states_and_attention(IDS[:1], None)[1]).abs().max()) < 0.05


def test_attention_with_sinks_is_refused(tiny_model: Make) -> None:
    folder = tiny_model("gpt_oss", num_local_experts=2, num_experts_per_tok=1, head_dim=8, num_key_value_heads=2)

    assert message_of(ModelError, lambda: watching(folder)) == (
        f"'{folder}' cannot run with this attention: NotImplementedError: attention with sinks or position biases is "
        "not watched\n"
        "  hint: its family does not support it in this version of transformers; choose another `method`"
    )


def test_layer_0_has_nothing_to_look_back_with(tiny_model: Make) -> None:
    for layer in (0, -3):
        with pytest.raises(SpecError) as fault:
            watching(tiny_model("llama"), layer=layer)

        assert str(fault.value) == (
            "`layer`: layer 0 comes before any attention, which the method reads\n"
            "  hint: give a layer from 1 on, or -1 for the last"
        )


@pytest.mark.parametrize("implementation", ["sdpa", "eager", "nonsense"])
def test_backward_attention_has_no_other_implementation(implementation: str, tiny_model: Make) -> None:
    with pytest.raises(SpecError) as fault:
        load_encoder(str(tiny_model("llama")), method="reba", device="cpu", attn=implementation)

    assert str(fault.value) == (
        "`attn`: backward attention is computed by ragidx itself, with every implementation alike\n"
        "  hint: remove `attn`"
    )
