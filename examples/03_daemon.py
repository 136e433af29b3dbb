"""One daemon that keeps a corpus warm, many environments that search through it. Runs in a few seconds."""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grepseek_env import GrepSeekEnv, SearchBackend, open_backend
from grepseek_env.errors import EngineFault

ENVIRONMENTS = 8


def play(backend: SearchBackend, seed: int) -> str:
    """One episode with a single search; all environments share the backend's one connection."""
    env = GrepSeekEnv(corpus="world:tiny", backend=backend, action_format="plain")
    try:
        env.reset(seed=seed)
        observation, *_ = env.step("rg -c -F born corpus.jsonl")
        return observation.strip()
    finally:
        env.close()


with tempfile.TemporaryDirectory() as folder:
    socket = Path(folder) / "grepseek.sock"
    # In a terminal:  grepseek serve --corpus world:tiny
    command = [sys.executable, "-m", "grepseek_env.cli", "serve", "--corpus", "world:tiny", "--socket", str(socket)]
    daemon = subprocess.Popen([*command, "--quiet"], stdout=subprocess.PIPE, text=True)
    print(daemon.stdout.readline().strip())  # it is ready when this line comes

    # Without --socket, open_backend("world:tiny") and the environments find it by themselves.
    backend = open_backend("world:tiny", daemon=socket)
    print(backend.run("wc -l corpus.jsonl").stdout.decode().strip())
    for result in backend.run_many(["head -n 1 corpus.jsonl | cut -c 1-40", "cat corpus.jsonl > copy"]):
        print(result.stdout.decode().strip() if hasattr(result, "stdout") else f"refused: {result.reason}")

    with ThreadPoolExecutor(ENVIRONMENTS) as pool:
        print("lines with 'born':", set(pool.map(lambda seed: play(backend, seed), range(ENVIRONMENTS))))

    status = backend.status()
    cache = status["cache"]
    print("commands:", status["commands"], "- of these not run again:", cache["hits"] + cache["shared"])

    daemon.terminate()  # running commands may end; a second signal stops them at once
    print("exit code:", daemon.wait())
    try:
        backend.run("wc -l corpus.jsonl")
    except EngineFault as error:
        print("afterwards:", error)
    backend.close()
