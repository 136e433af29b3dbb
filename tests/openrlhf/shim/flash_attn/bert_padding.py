"""What OpenRLHF imports from here, in plain torch."""

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from einops import rearrange

__all__ = ["index_first_axis", "pad_input", "rearrange", "unpad_input"]


def index_first_axis(x, indices):  # noqa: ANN001, ANN201
    return x[indices]


def unpad_input(hidden, mask, unused_mask=None):  # noqa: ANN001, ANN201
    assert unused_mask is None
    lengths = mask.sum(-1, dtype=torch.int32)
    indices = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
    offsets = F.pad(torch.cumsum(lengths, 0, dtype=torch.int32), (1, 0))
    return hidden.flatten(0, 1)[indices], indices, offsets, int(lengths.max()), lengths


def pad_input(hidden, indices, batch, length):  # noqa: ANN001, ANN201
    out = torch.zeros((batch * length, *hidden.shape[1:]), dtype=hidden.dtype, device=hidden.device)
    return out.index_put((indices,), hidden).unflatten(0, (batch, length))
