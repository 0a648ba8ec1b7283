"""Wide rows: sparse rows with more than 2,048 columns, and dense ones with more than 8,192."""

import numpy as np
import pytest
import scipy.sparse as sp

import bitclass
from bitclass import BinaryCodeClassifier
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.training.steps import _gradient_by_means

from .altered_files import with_data, without_tensor

N_COLUMNS = 3000


def wide_rows(n, n_classes=8, seed=0):
    """Rows of 10 entries, a third of which are columns that are typical of the class."""
    random = np.random.default_rng(seed)
    y = random.integers(n_classes, size=n)
    columns = random.integers(N_COLUMNS, size=(n, 10))
    typical = random.random((n, 10)) < 0.35
    columns[typical] = ((40 * y[:, None] + random.integers(40, size=(n, 10))) % N_COLUMNS)[typical]
    values = (1.0 + random.random(columns.shape)).astype(np.float32)
    X = sp.csr_array(
        (values.ravel(), (np.repeat(np.arange(n), 10), columns.ravel())), shape=(n, N_COLUMNS)
    )
    return X, y


def classifier(**parameters):
    return BinaryCodeClassifier(64, random_state=0, **parameters)


@pytest.fixture(scope="module")
def rows():
    return *wide_rows(600), *wide_rows(400, seed=1)


@pytest.fixture(scope="module")
def fitted(rows):
    return classifier(keep_sums=True).fit(*rows[:2])


def test_accuracy_and_confidence(rows, fitted):
    X, y, X_test, y_test = rows
    closed = classifier(refine=False).fit(X, y)
    for model in (closed, fitted):
        accuracy = model.score(X_test, y_test)
        assert accuracy > 0.75
        assert abs(model.predict_proba(X_test).max(axis=1).mean() - accuracy) < 0.12
        assert abs(model.report_.accuracy - accuracy) < 0.1


def test_stored_zeros_are_no_entries(rows, fitted):
    X, y, X_test, _ = rows
    with_zeros = sp.csr_array(X + sp.csr_array(([1.0], ([0], [5])), shape=X.shape))
    entry = slice(with_zeros.indptr[0], with_zeros.indptr[1])
    with_zeros.data[entry][with_zeros.indices[entry] == 5] -= 1.0
    other = classifier().fit(with_zeros.astype(np.float32), y)
    np.testing.assert_array_equal(other.predict(X_test), fitted.predict(X_test))


def test_batches_equal_all_rows_at_once(rows, fitted):
    X, y, X_test, _ = rows
    batched = classifier()
    for start in range(0, len(y), 150):
        batched.partial_fit(X[start : start + 150], y[start : start + 150])
    assert np.mean(batched.predict(X_test) == fitted.predict(X_test)) > 0.99


def test_columns_seen_once_are_kept_where_rows_have_few_entries():
    random = np.random.default_rng(0)
    n_values = 1500
    label = random.integers(5, size=n_values)
    first = np.concatenate([np.arange(n_values), random.integers(300, size=1500)])
    columns = np.column_stack([first, n_values + random.integers(n_values, size=len(first))])
    X = sp.csr_array(
        (np.ones(columns.size), (np.repeat(np.arange(len(first)), 2), columns.ravel())),
        shape=(len(first), 2 * n_values),
    )
    model = classifier(refine=False).fit(X, label[first])
    rare = np.arange(300, n_values)
    alone = sp.csr_array((np.ones(len(rare)), (np.arange(len(rare)), rare)), (len(rare), 3000))
    assert model.score(alone, label[rare]) > 0.95


def test_one_row_per_class():
    X, y = wide_rows(300)
    first = np.unique(y, return_index=True)[1]
    model = classifier().fit(X[first], y[first])
    assert model.score(X[first], y[first]) == 1.0


def test_dense_rows_of_many_features():
    random = np.random.default_rng(0)
    means = 0.3 * random.standard_normal((4, 8200))
    y = np.arange(160) % 4
    X = (means[y] + random.standard_normal((160, 8200)) + 3.0).astype(np.float32)
    model = classifier().fit(X[:80], y[:80])
    assert model.score(X[80:], y[80:]) > 0.95


def test_more_classes_than_weights_are_learned_for():
    X, y = wide_rows(9000, n_classes=2100)
    typical = sp.csr_array(
        (np.full(9000, 3.0), (np.arange(9000), y + 500)), shape=(9000, N_COLUMNS)
    )
    X = sp.csr_array(X + typical)
    model = classifier(refine=True).fit(X[:8000], y[:8000])
    known = np.isin(y[8000:], y[:8000])
    assert model.score(X[8000:][known], y[8000:][known]) > 0.4


def test_gradient_of_rows_compared_with_class_means():
    """Rows that agree with the others of their class and with no other class have no loss."""
    codes = np.array([[3, 3, 3, 3], [-3, 3, -3, 3], [3, -3, -3, -3]], dtype=np.float32)
    y, ones = np.repeat(np.arange(3), 2), np.ones(6, dtype=np.float32)
    loss, gradient = _gradient_by_means(codes[y], y, ones, 2.0)
    assert loss < 0.05
    moved = codes[y].copy()
    moved[0] = codes[1]
    worse, gradient = _gradient_by_means(moved, y, ones, 2.0)
    assert worse > loss
    assert (gradient[0] * (codes[0] - codes[1]) <= 0).all()


def test_the_scale_of_a_column_hardly_matters(rows, fitted):
    X, y, X_test, y_test = rows
    factors = sp.diags_array(10.0 ** np.random.default_rng(0).uniform(-4, 4, N_COLUMNS))
    scaled = classifier().fit(sp.csr_array(X @ factors), y)
    assert (
        scaled.score(sp.csr_array(X_test @ factors), y_test) > fitted.score(X_test, y_test) - 0.05
    )


def test_rows_without_any_entry():
    X = sp.csr_array((40, 5000), dtype=np.float32)
    assert len(classifier().fit(X, np.arange(40) % 4).predict(X)) == 40


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda content: without_tensor(content, "n_columns"), "n_columns"),
        (lambda content: with_data(content, "n_columns", "<i8", [1]), "columns: expected 9"),
        (lambda content: with_data(content, "n_columns", "<i8", [1 << 40]), "n_columns"),
        (lambda content: with_data(content, "columns", "<i4", np.arange(9)[::-1]), "columns"),
        (lambda content: with_data(content, "columns", "<i4", 30_000 + np.arange(9)), "columns"),
    ],
)
def test_damaged_columns_in_a_file_are_refused_by_name(tmp_path, damage, named):
    hash_function = HashFunction(
        np.ones((9, 8), dtype=np.float32),
        np.zeros(8),
        columns=np.arange(9, dtype=np.int32),
        n_features=20_000,
    )
    model = PackedModel(np.arange(2), np.array([[0], [255]], dtype=np.uint8), hash_function)
    path = tmp_path / "model.safetensors"
    bitclass.storage.save(path, model)
    bitclass.load(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(bitclass.storage.ModelFileError, match=named):
        bitclass.load(path)


def test_many_columns_take_no_memory_and_change_no_answer(rows, fitted, tmp_path):
    """A small file that claims them must not make a table of them."""
    X_test = rows[2]
    fitted.save(tmp_path / "few")
    content = with_data((tmp_path / "few").read_bytes(), "n_columns", "<i8", [1 << 24])
    (tmp_path / "many").write_bytes(content)
    few, many = bitclass.load(tmp_path / "few"), bitclass.load(tmp_path / "many")
    assert len(many.hash_function._places) == len(many.hash_function.columns) + 1
    wider = X_test.copy()
    wider.resize(X_test.shape[0], 1 << 24)
    for method in ("predict", "predict_proba"):
        np.testing.assert_array_equal(getattr(many, method)(wider), getattr(few, method)(X_test))
    wider.indices[3] = (1 << 24) - 1  # not a column of the model
    assert np.mean(many.predict(wider) == few.predict(X_test)) > 0.99
    wider.data[7] = np.inf
    with pytest.raises(ValueError, match=f"row 0, feature {wider.indices[7]}"):
        many.predict(wider)


def test_duplicate_entries_are_summed(rows):
    X, y, *_ = rows
    halves = np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr
    twice = sp.csr_array(halves, shape=X.shape)
    found = [classifier(refine=False).fit(one, y) for one in (X, twice)]
    np.testing.assert_array_equal(found[1].projection_, found[0].projection_)
    assert twice.nnz == 2 * X.nnz, "a copy was changed"
