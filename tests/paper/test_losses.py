import numpy as np
import pytest

from bitclass.paper.losses import tabulate

from ..brute_force import EVERY_LOSS


def sigmoid(margins):
    return 1.0 / (1.0 + np.exp(-margins))


@pytest.mark.parametrize("top", [-40, 0, 33])
def test_the_unit_of_the_exponential_loss_does_not_matter(top):
    table = tabulate("exponential", 50, 1.0)
    relative, absolute = table.quadratic_tables(top), table.quadratic_tables(0)
    np.testing.assert_allclose(relative * np.exp(2.0 * top), absolute, rtol=1e-9)
    # The paper's u and v, at margin 0.
    u, v = np.cosh(1.0), -np.sinh(1.0)
    np.testing.assert_allclose(absolute[:, 50], [-(v**2), -u * v])


@pytest.mark.parametrize("name", EVERY_LOSS)
@pytest.mark.parametrize("n_bits", [1, 2048])
def test_tables_are_finite_at_any_length(name, n_bits):
    table = tabulate(name, n_bits, 1.0)
    for top in (-n_bits, 0, n_bits):
        assert np.isfinite(table.quadratic_tables(top)).all()
    assert np.isfinite(table.values).all()


@pytest.mark.parametrize(
    "bump",
    [
        sigmoid,
        lambda m: np.exp(m) + 1e3 / (1 + np.exp(-m)),
        lambda m: np.exp(m / 4) + 1e6 * np.tanh(m / 20),
    ],
)
def test_non_convexity_is_detected_next_to_much_larger_values(bump):
    assert all(tabulate(name, 32, 0.3).convex for name in EVERY_LOSS)
    table = tabulate(bump, 128, 1.0)
    assert not table.convex
    delta, _ = table.quadratic_tables(0)
    assert delta.max() > 0


def test_an_offset_much_larger_than_the_range_is_removed():
    assert tabulate(lambda m: 1e10 + m, 8, 1.0).grid().max() == 32.0


@pytest.mark.parametrize(
    ("function", "n_bits", "message"),
    [
        (lambda m: -np.abs(m), 8, r"falls from -?0 at margin 0 to -2 at margin 2"),
        (np.zeros_like, 8, "increase somewhere"),
        (np.exp, 400, r"inf at margin 710.*scale"),
        (lambda m: m[:3], 8, "one value per margin"),
    ],
    ids=["decreasing", "constant", "overflowing", "of another shape"],
)
def test_a_callable_that_is_not_a_valid_loss_is_rejected(function, n_bits, message):
    with np.errstate(over="ignore"), pytest.raises(ValueError, match=message):
        tabulate(function, n_bits, 1.0)
