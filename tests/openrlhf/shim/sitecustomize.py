"""Runs OpenRLHF 0.11.2 on a machine without a GPU: replaces text in its modules while they are loaded; see README.md.

Every replacement must match, else the module does not load: another version of OpenRLHF has to be read anew.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys

SWITCH = "GREPSEEK_OPENRLHF_SHIM"

# name -> text, what takes its place
RULES: dict[str, tuple[str, str]] = {
    "cuda device": ('torch.device(f"cuda:{torch.cuda.current_device()}")', 'torch.device("cpu")'),
    "current device": ("torch.cuda.current_device()", '"cpu"'),
    "set device": ("torch.cuda.set_device(local_rank)", "None"),
    "synchronize": ("torch.cuda.synchronize()", "None"),
    "empty cache": ("torch.cuda.empty_cache()", "None"),
    "stream": ("torch.cuda.current_stream()", "None"),
    "mesh": ('init_device_mesh(\n            "cuda"', 'init_device_mesh(\n            "cpu"'),
    "empty tensor": ('device="cuda"', 'device="cpu"'),
    # DeepSpeed's own AdamW for CPUs is C++ that is built at the first use.
    "adam": (
        '"type": "AdamW",\n                "params": {',
        '"type": "AdamW",\n                "params": {"torch_adam": True,',
    ),
    # The weights travel through the store of the group in place of NCCL. numpy has no bfloat16.
    "group": (
        "    pynccl = PyNcclCommunicator(pg, device=device)\n    return pynccl",
        """
    class Group:
        def broadcast(self, tensor, src, stream=None):
            import torch
            if pg.rank == src:
                pg.broadcast_obj(tensor.detach().float().numpy(), src)
            else:
                tensor.copy_(torch.from_numpy(pg.broadcast_obj(None, src)))
    return Group()
""",
    ),
    # The same: an operation in C++ for all-reduce among the processes of one host.
    "shared memory": ('builder = get_accelerator().create_op_builder("ShareMemCommBuilder")', "return None"),
    # vLLM packs the weights of linear layers anew for a CPU and drops or keeps the originals, so that new weights could
    # not be loaded or would not be used; a GPU uses them as they are.
    "packed weights": ("    if check_cpu_sgl_kernel(N, K, dtype):\n", "    if False:\n"),
    "packed weights of oneDNN": (
        "        ops._supports_onednn\n        and current_platform",
        "        False\n        and current_platform",
    ),
}
MODULES: dict[str, tuple[str, ...]] = {
    "deepspeed.comm.torch": ("shared memory",),
    "openrlhf.trainer.ppo_utils.replay_buffer": ("cuda device", "current device"),
    "openrlhf.trainer.ray.launcher": ("current device", "synchronize", "empty cache"),
    "openrlhf.trainer.ray.ppo_actor": ("current device", "synchronize", "empty cache", "stream"),
    "openrlhf.trainer.ray.ppo_critic": ("current device", "synchronize", "empty cache"),
    "openrlhf.trainer.ray.vllm_worker_wrap": ("synchronize", "stream", "empty tensor"),
    "openrlhf.utils.deepspeed.deepspeed": ("current device", "set device", "empty cache", "mesh", "adam"),
    "openrlhf.utils.distributed_util": ("synchronize", "group"),
    "vllm.model_executor.layers.utils": ("packed weights", "packed weights of oneDNN"),
}


def replaced(module: str, text: str) -> str:
    """Returns the module's text with its replacements; raises where one does not match."""
    for name in MODULES[module]:
        old, new = RULES[name]
        if old not in text:
            raise ImportError(f"the CPU shim finds no {name!r} in {module}: {old!r}; read this version of it anew")
        text = text.replace(old, new)
    return text


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str):  # noqa: ANN202 - a code object, which the base class does not type either
        path = self.get_filename(fullname)
        text = replaced(fullname, self.get_data(path).decode())
        return compile(text, path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):  # noqa: ANN001, ANN202 - the base class has the types
        del target
        if fullname not in MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


if os.environ.get(SWITCH) == "1":
    sys.meta_path.insert(0, _Finder())
