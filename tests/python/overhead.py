"""What a call of a small plan takes: up to 20 us, or as many times longer as this machine is slower in Python."""
import time

LIMIT_S, NUMPY_S = 20e-6, 0.3e-6  # of a call; of NumPy's addition of two small arrays where that was measured


def shortest(call):
    """Of ten calls in a row: others may have had the machine."""
    start = time.perf_counter()
    for _ in range(10):
        call()
    return (time.perf_counter() - start) / 10


def check(call, numpy_call):
    best, numpy, rounds = float("inf"), float("inf"), 0
    limit = lambda: LIMIT_S * max(1, numpy / NUMPY_S)
    while rounds < 400 or (best > limit() and rounds < 20000):
        best, numpy, rounds = min(best, shortest(call)), min(numpy, shortest(numpy_call)), rounds + 1
    print(f"{best * 1e6:.1f} us a call, {numpy * 1e6:.2f} us an addition")
    assert best <= limit(), f"a call takes more than {limit() * 1e6:.0f} us"
