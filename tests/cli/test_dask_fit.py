"""`bitclass fit --dask` as a user runs it."""

import json

import numpy as np
from running import assert_refused, bitclass_process, problem, succeed

from bitclass import load as bitclass_load

FIT = ("--loss", "hinge", "--bits", "32", "--model")


def test_a_cluster_writes_the_model_file_of_one_machine(tmp_path):
    X, y = problem(n=3000, d=12)
    np.savez(tmp_path / "train.npz", X=X, y=y)
    printed = succeed(
        *("fit", "train.npz", *FIT, "cluster", "--dask", "local:2", "--json"),
        run=bitclass_process,
        cwd=tmp_path,
    )
    facts = json.loads(printed)
    assert (facts["rows"], facts["features"], facts["classes"]) == (3000, 12, 4)
    succeed("fit", "train.npz", *FIT, "machine", cwd=tmp_path)
    cluster, machine = (bitclass_load(tmp_path / name) for name in ("cluster", "machine"))
    # Sums are merged in another order, and refinement amplifies their rounding.
    assert np.mean(cluster.predict(X) == machine.predict(X)) > 0.97


def test_missing_clusters_and_files_are_reported_in_one_line(tmp_path):
    np.savez(tmp_path / "train.npz", X=np.eye(4), y=np.arange(4))
    no_name = (1, ["must be tcp://HOST:PORT or local:WORKERS, found"])
    expected = {
        ("train.npz", "--dask", "tcp://127.0.0.1:9"): (1, ["cannot reach a Dask scheduler at"]),
        ("train.npz", "--dask", "somewhere"): no_name,
        ("train.npz", "--dask", "local:0"): no_name,
        ("train.npz", "--dask", "local:1", "--checkpoint", "folder"): (2, ["--checkpoint"]),
        ("absent.npz", "--dask", "local:1"): (1, ["absent.npz", "no such file"]),
        ("train.npz", "--dask", "local:1", "--extractor", "gist"): (2, ["--extractor"]),
    }
    cases = {
        given: (("fit", *given, *FIT, "model"), code, words)
        for given, (code, words) in expected.items()
    }
    assert_refused(cases, tmp_path, imports=["bitclass.distributed"])
