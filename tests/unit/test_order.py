import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.data import order

SIZES = st.integers(1, 60)


@given(size=SIZES, batch_size=st.integers(1, 70), seed=st.integers(0, 2**32), epochs=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_every_epoch_holds_every_example_once(size, batch_size, seed, epochs):
    steps = -(-size * epochs // batch_size)
    stream = [i for step in range(steps) for i in order.indices(step, batch_size, size, seed)]
    assert len(stream) == steps * batch_size
    for epoch in range(epochs):
        assert sorted(stream[epoch * size : (epoch + 1) * size]) == list(range(size))


@given(step=st.integers(0, 10**6), size=SIZES, batch_size=st.integers(1, 20), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_a_batch_is_a_function_of_seed_and_step_whatever_was_asked_before(step, size, batch_size, seed):
    batch = order.indices(step, batch_size, size, seed)
    order.indices(step + 7, batch_size, size, seed + 1)
    order._permutation.cache_clear()
    assert order.indices(step, batch_size, size, seed) == batch


def test_seeds_and_epochs_have_orders_of_their_own():
    epoch = order.indices(0, 1000, 1000, seed=1)
    assert epoch != order.indices(1, 1000, 1000, seed=1)
    assert epoch != order.indices(0, 1000, 1000, seed=2)
    assert epoch != sorted(epoch)


@given(rows=st.integers(1, 8), world_size=st.integers(1, 6))
def test_the_shares_of_all_ranks_are_the_batch(rows, world_size):
    batch = list(range(rows * world_size))
    shares = [order.share(batch, rank, world_size) for rank in range(world_size)]
    assert {len(part) for part in shares} == {rows}
    assert [i for part in shares for i in part] == batch


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="batch_size is 10, which 3 workers"):
        order.share(range(10), 0, 3)


@pytest.mark.parametrize("arguments", [(-1, 2, 3), (0, 0, 3), (0, 2, 0)])
def test_impossible_sizes_are_refused(arguments):
    with pytest.raises(ValueError, match="at least"):
        order.indices(*arguments, seed=0)
