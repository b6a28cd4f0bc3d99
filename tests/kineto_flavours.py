"""The literal workload as Kineto writes it for CUDA, ROCm and XPU, in literal JSON."""

from __future__ import annotations

from literal_workload import BASE, CALLS, OPS, RANGES

_CUDA = {"launch": "cudaLaunchKernel", "copy": "cudaMemcpyAsync", "graph": "cudaGraphLaunch"}
_HIP = {"launch": "hipLaunchKernel", "copy": "hipMemcpyAsync", "graph": "hipGraphLaunch"}
_UR = {"launch": "urEnqueueKernelLaunch", "copy": "urEnqueueUSMMemcpy", "graph": "urEnqueueKernelLaunch"}
FLAVOURS = {
    "cuda": ("cuda_runtime", "stream", _CUDA),
    "rocm": ("cuda_runtime", "stream", _HIP),
    "xpu": ("xpu_runtime", "sycl queue", _UR),
}
"""Category of calls, argument that names the queue, and names of calls."""


def us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def event(category: str, name: str, start: int, length: int, args: str) -> str:
    return (
        f'{{"ph":"X","cat":"{category}","name":"{name}","pid":700,"tid":701,'
        f'"ts":{us(BASE + start)},"dur":{us(length)},"args":{{{args}}}}}'
    )


def kineto(flavour: str) -> bytes:
    """The literal workload as one flavour writes it."""
    category, queue, names = FLAVOURS[flavour]
    events = [event(category, names[name], start, 5, f'"correlation":{c}') for name, start, c in CALLS]
    if flavour == "xpu":  # a driver call lies inside each runtime call, under the same correlation
        driver = "zeCommandListAppendLaunchKernel"
        events += [event("xpu_driver", driver, start + 1, 3, f'"correlation":{c}') for _, start, c in CALLS]
    for name, stream, start, end, c in OPS:
        kind = "gpu_memcpy" if "Memcpy" in name else "kernel"
        extra = ',"hsa_queue":1,"kind":"Dispatch"' if flavour == "rocm" else ""
        events.append(event(kind, name, start, end - start, f'"device":0,"{queue}":{stream},"correlation":{c}{extra}'))
    events += [event("user_annotation", text, start, end - start, "") for text, start, end in RANGES]
    return ('{"schemaVersion":1,"traceEvents":[' + ",".join(events) + "]}").encode()
