"""What the tests beside PyTorch share: a Python that has it, and its models as ONNX files.

Import it first. A test whose Python lacks one of the modules goes on in $GRAPHC_TORCH or .cache/torch/bin/python, and is
skipped where that does not have them either.
"""
import os, sys, warnings

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import beside_torch

beside_torch.go_on(("onnx", "onnxscript", "peft", "torch", "transformers"))
import torch

warnings.simplefilter("ignore")
torch.set_num_threads(1)


class Logits(torch.nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m

    def forward(self, input_ids):
        return self.m(input_ids=input_ids, use_cache=False).logits


def drawn(make, scale):
    """A model, the same every time. Its vectors are drawn too: the exporter keeps one of several that are equal."""
    torch.manual_seed(0)
    m = make().eval()
    for p in m.parameters():
        if p.dim() == 1:
            p.data += scale * torch.randn_like(p)
    return m


def export(m, path, ids, batch, seq):
    """Token ids to logits as ONNX, of up to so many rows and tokens; ids: of any size."""
    dims = {"input_ids": {0: torch.export.Dim("batch", min=1, max=batch), 1: torch.export.Dim("seq", min=2, max=seq)}}
    torch.onnx.export(Logits(m), (torch.as_tensor(ids),), dynamo=True, dynamic_shapes=dims, verbose=False,
                      input_names=["input_ids"], output_names=["logits"]).save(path, external_data=False)
