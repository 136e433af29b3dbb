import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grepseek_env.engine.index import codes

BLOCKS = st.sampled_from((1, 2, 3, 10, 100, 1000, 70_000, 5_000_000))


@st.composite
def numbers_below(draw: st.DrawFn) -> tuple[list[int], int]:
    blocks = draw(BLOCKS)
    low = draw(st.integers(0, blocks - 1))
    high = draw(st.integers(low, min(blocks - 1, low + draw(st.sampled_from((3, 100, blocks))))))
    return sorted(draw(st.sets(st.integers(low, high), max_size=60))), blocks


def coded(numbers: list[int], blocks: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    array = np.array(numbers, np.uint32)
    room = np.zeros(len(numbers) * 8 + 64, np.uint8)
    size = int(codes.code_bits(array.ctypes.data, len(array), blocks, room.ctypes.data))
    return np.concatenate([room[:size], np.zeros(64, np.uint8)])


def decoded(data: "np.ndarray[tuple[int], np.dtype[np.uint8]]", blocks: int) -> list[int] | int:
    room = np.full(blocks + 16, 0xFFFF_FFFF, np.uint32)
    count = int(codes.decode(data.ctypes.data, data.ctypes.data + len(data) - 64, blocks, room.ctypes.data))
    assert (room[blocks:] == 0xFFFF_FFFF).all()
    return count if count >= codes.ALWAYS else room[:count].tolist()


@given(numbers_below())
def test_property_a_list_is_read_as_it_was_written(given_: tuple[list[int], int]) -> None:
    numbers, blocks = given_
    wanted: list[int] | int = codes.ALWAYS if 2 * len(numbers) > blocks else numbers
    assert decoded(coded(numbers, blocks), blocks) == wanted


@given(numbers_below(), st.data())
def test_property_damage_gives_blocks_that_exist_or_is_noticed(
    given_: tuple[list[int], int], data: st.DataObject
) -> None:
    numbers, blocks = given_
    bad = coded(numbers, blocks)
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 65))] ^= data.draw(st.integers(1, 255))
    got = decoded(bad, blocks)
    assert got in (codes.ALWAYS, codes.DAMAGED) or (isinstance(got, list) and all(n < blocks for n in got))


def test_far_apart_and_close_together() -> None:
    blocks = 5_000_000
    for numbers in ([0, blocks - 1], [blocks - 1], [0], [*range(200), blocks - 1], [0, *range(blocks - 300, blocks)]):
        assert decoded(coded(numbers, blocks), blocks) == numbers


@given(st.binary(max_size=300), st.data())
def test_property_a_changed_byte_changes_the_sum(content: bytes, data: st.DataObject) -> None:
    one = np.frombuffer(content, np.uint8)
    if not len(one):
        return
    other = one.copy()
    other[data.draw(st.integers(0, len(one) - 1))] ^= data.draw(st.integers(1, 255))
    assert codes.checksum(one.ctypes.data, len(one)) != codes.checksum(other.ctypes.data, len(other))
