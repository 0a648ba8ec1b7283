"""`bitclass fit --dask` as a person runs it."""

import json

import numpy as np
from running import all_at_once, assert_one_line, bitclass, problem, succeed

from bitclass import load as bitclass_load

FIT = ("--loss", "hinge", "--bits", "32", "--model")


def test_a_cluster_writes_the_model_file_of_one_machine(tmp_path):
    X, y = problem(n=3000, d=12)
    np.savez(tmp_path / "train.npz", X=X, y=y)
    printed = succeed(
        "fit", "train.npz", *FIT, "cluster", "--dask", "local:2", "--json", cwd=tmp_path
    )
    facts = json.loads(printed)
    assert (facts["rows"], facts["features"], facts["classes"]) == (3000, 12, 4)
    succeed("fit", "train.npz", *FIT, "machine", cwd=tmp_path)
    cluster, machine = (bitclass_load(tmp_path / name) for name in ("cluster", "machine"))
    # Sums are merged in another order, and refinement amplifies their rounding.
    assert np.mean(cluster.predict(X) == machine.predict(X)) > 0.97


def test_clusters_and_files_that_are_not_there_are_told_in_a_line(tmp_path):
    np.savez(tmp_path / "train.npz", X=np.eye(4), y=np.arange(4))

    def run(data, *more):
        return lambda: bitclass("fit", data, *FIT, "model", *more, cwd=tmp_path)

    found = all_at_once(
        [
            run("train.npz", "--dask", "tcp://127.0.0.1:9"),
            run("train.npz", "--dask", "somewhere"),
            run("train.npz", "--dask", "local:0"),
            run("train.npz", "--dask", "local:1", "--checkpoint", "folder"),
            run("absent.npz", "--dask", "local:1"),
            run("train.npz", "--dask", "local:1", "--extractor", "gist"),
        ]
    )
    assert_one_line(found[0], 1, "no Dask scheduler can be reached at tcp://127.0.0.1:9")
    for done in found[1:3]:
        assert_one_line(done, 1, "named tcp://HOST:PORT or local:WORKERS, found")
    assert_one_line(found[3], 2, "--checkpoint")
    assert_one_line(found[4], 1, "absent.npz", "no such file")
    assert_one_line(found[5], 2, "--extractor")
    assert not (tmp_path / "model").exists()
