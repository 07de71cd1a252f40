"""The backend suite of the installed onnx wheel against the checked-in list (see suite.py)."""
import os, sys
import onnx
import suite

here = os.path.dirname(os.path.abspath(__file__))
data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
sys.argv[2:2] = [data, os.path.join(here, "expected.txt")]
sys.exit(suite.main())
