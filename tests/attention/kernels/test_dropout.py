"""Dropout by counting: fair, unlike its neighbours, and the same however it is cut."""

import torch

from regard.attention.kernels import dropout
from regard.attention.kernels.dropout import Dropout
from regard.attention.mask import Tile

SHAPE, CPU = torch.Size([3, 2, 200, 256]), torch.device("cpu")


def test_factors():
    factors = Dropout(0.25, 5).factors(SHAPE, torch.float32, CPU)
    assert factors.shape == SHAPE
    assert factors.unique().tolist() == [0.0, torch.tensor(4 / 3).item()]
    lost = (factors == 0).double()
    error = (0.25 * 0.75 / SHAPE.numel()) ** 0.5
    assert abs(lost.mean() - 0.25) < 4 * error
    spread = lost.mean(-1).std()  # as of independent draws
    assert abs(spread / (0.25 * 0.75 / 256) ** 0.5 - 1) < 0.1


def test_neighbours_are_unlike():
    lost = (Dropout(0.5, 9).factors(SHAPE, torch.float32, CPU) == 0).double() - 0.5
    for down, right in ((0, 1), (1, 0), (1, 1), (0, 16), (64, 0)):
        a = lost[..., down:, right:]
        b = lost[..., : SHAPE[-2] - down, : SHAPE[-1] - right]
        assert abs((a * b).mean() / 0.25) < 4 / a.numel() ** 0.5
    assert abs((lost[:, 0] * lost[:, 1]).mean() / 0.25) < 0.02
    corners = lost[..., :1, :1] * lost[..., :1, 1:] * lost[..., 1:, :1] * lost[..., 1:, 1:]
    assert abs(corners.mean() * 16) < 0.02
    other = (Dropout(0.5, 10).factors(SHAPE, torch.float32, CPU) == 0).double() - 0.5
    assert abs((lost * other).mean() * 4) < 0.02


def test_a_tile_is_a_part_of_the_whole():
    dropout = Dropout(0.3, 11)
    whole = dropout.factors(SHAPE, torch.float32, CPU)
    picked = torch.tensor([3, 77, 200])
    for columns in (slice(5, 60), picked):
        tile = dropout.factors(SHAPE, torch.float32, CPU, Tile(slice(10, 33), columns))
        assert torch.equal(tile, whole[..., 10:33, :][..., columns])


def test_the_seed_is_the_generators():
    assert Dropout.drawn(0.0, torch.zeros(1)) is None
    torch.manual_seed(4)
    one, two = Dropout.drawn(0.1, torch.zeros(1)), Dropout.drawn(0.1, torch.zeros(1))
    torch.manual_seed(4)
    assert Dropout.drawn(0.1, torch.zeros(1)) == one != two


def test_the_bits_of_a_number_are_splitmix64s() -> None:
    def finalised(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return (z ^ (z >> 31)) % 2**31

    numbers = [0, 1, 7, 2**33 + 5, 2**40 - 1]
    found = dropout._mixed(torch.tensor(numbers)).tolist()
    assert found == [finalised(number * 0x9E3779B97F4A7C15 % 2**64) for number in numbers]
