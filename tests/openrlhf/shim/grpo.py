"""`openrlhf.cli.train_ppo_ray` in a Ray that believes in two GPUs; takes the same arguments.

The command starts Ray itself, without a count of devices, unless that has been done.
"""

import runpy
import sys

import ray

if __name__ == "__main__":
    ray.init(num_gpus=2, num_cpus=8, include_dashboard=False, object_store_memory=200 << 20)
    sys.argv[0] = "train_ppo_ray"
    runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__", alter_sys=True)
