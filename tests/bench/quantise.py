"""Quantised forms of the example models, by onnxruntime's quantiser: what cpu.py then times and checks are made of.

    quantise.py FOLDER OUT [NAME:FORM...]       FOLDER holds the models with their weights; OUT/NAME_FORM.onnx

Forms: qdq (static, i8 by i8, a scale per channel, two random inputs to calibrate), dynamic, and 4bit0, 4bit4: MatMulNBits,
blocks of 32, symmetric, with accuracy_level 0 or 4 (needs the module onnx_ir). Without names the rows of RESULTS.md.
"""
import os, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import cases
import onnx
from onnxruntime import quantization as q

SIZES = {"batch": 1, "seq": 64, "dec": 64, "past": 64}
ROWS = ["resnet50:qdq", "mobilenet_v3_large:qdq", "bert_base:dynamic", "vit_b_16:dynamic",
        *[f"{n}:4bit{level}" for n in ("llama_small", "llama_small_kv") for level in (0, 4)]]


class Reader(q.CalibrationDataReader):
    def __init__(self, path):
        self.data = [cases.inputs(path, SIZES, seed) for seed in range(2)]

    def get_next(self):
        return self.data.pop() if self.data else None


def static(path, out):
    q.quantize_static(path, out, Reader(path), quant_format=q.QuantFormat.QDQ, per_channel=True,
                      activation_type=q.QuantType.QInt8, weight_type=q.QuantType.QInt8)


def dynamic(path, out):
    plain = onnx.load(path)
    del plain.graph.value_info[:]  # which the tool leaves as they were where it folds a Gemm
    with tempfile.TemporaryDirectory(dir=os.path.dirname(out)) as tmp:
        onnx.save(plain, f"{tmp}/m.onnx", save_as_external_data=True, location="m.weights")
        q.quantize_dynamic(f"{tmp}/m.onnx", out)


def few_bits(level):
    def make(path, out):
        from onnxruntime.quantization import matmul_nbits_quantizer as nbits
        quantizer = nbits.MatMulNBitsQuantizer(onnx.load(path), block_size=32, is_symmetric=True, accuracy_level=level)
        quantizer.process()
        onnx.save(quantizer.model.model, out, save_as_external_data=True, location=os.path.basename(out)[:-5] + ".weights")
    return make


FORMS = {"qdq": static, "dynamic": dynamic, "4bit0": few_bits(0), "4bit4": few_bits(4)}


def main():
    folder, out = sys.argv[1:3]
    os.makedirs(out, exist_ok=True)
    for row in sys.argv[3:] or ROWS:
        name, form = row.split(":")
        FORMS[form](f"{folder}/{name}.onnx", f"{os.path.abspath(out)}/{name}_{form}.onnx")
        print(f"{name}_{form}", flush=True)


if __name__ == "__main__":
    main()
