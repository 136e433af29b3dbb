"""Joining a cluster, and who imports Ray at all; what needs a cluster is in `tests/distributed`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from grepseek_env.distributed import ray_links
from grepseek_env.distributed.ray_links import connect
from grepseek_env.errors import ConfigError, EngineFault

ROOT = Path(__file__).parents[3]
OWNERS = {"grepseek_env/distributed/ray_links.py"}


class Cluster:
    """In the place of the module `ray`: joining it fails in these ways, one after the other."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.asked: list[str] = []

    def is_initialized(self) -> bool:
        return False

    def init(self, *, address: str, log_to_driver: bool) -> None:
        assert not log_to_driver
        self.asked.append(address)
        if self.faults:
            raise self.faults.pop(0)


DIED = RuntimeError("RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err")


def test_a_client_server_whose_child_died_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(DIED, DIED)
    monkeypatch.setattr(ray_links, "need_ray", lambda: cluster)
    assert connect("h:1") is cluster
    assert cluster.asked == ["ray://h:1"] * 3


@pytest.mark.parametrize(("faults", "tries"), [((DIED,) * 9, 3), ((ConnectionError("refused"), DIED), 1)])
def test_a_cluster_that_cannot_be_joined_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, faults: tuple[Exception, ...], tries: int
) -> None:
    cluster = Cluster(*faults)
    monkeypatch.setattr(ray_links, "need_ray", lambda: cluster)
    with pytest.raises(EngineFault, match=r"no Ray cluster can be reached at ray://h:1 .*ray start --head"):
        connect("h:1")
    assert len(cluster.asked) == tries


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'grepseek-env\[ray\]'"):
        connect()


def _imports_ray(path: Path) -> bool:
    """Returns whether a file imports Ray in any way; import-linter does not see `import_module`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str | None] = []
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom(level=0):
                names = [node.module]
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__")):
                names = [each.value for each in node.args if isinstance(each, ast.Constant)]
        if any(name == "ray" or str(name).startswith("ray.") for name in names):
            return True
    return False


def test_ray_is_imported_in_one_place() -> None:
    files = [path for top in ("grepseek_env", "policies", "algos", "examples") for path in (ROOT / top).rglob("*.py")]
    assert {str(path.relative_to(ROOT)) for path in files if _imports_ray(path)} == OWNERS
