"""One server for all tests of the page: it takes a second to learn what it shows."""

import threading

import pytest


@pytest.fixture(scope="session")
def explored(tmp_path_factory):
    """Explorer, model and gallery of a folder of drawn images."""
    pytest.importorskip("PIL", reason="the page needs bitclass[images]")
    import explore_images

    folder = tmp_path_factory.mktemp("drawn") / "images"
    folder.mkdir()
    explore_images.draw_folder(folder)
    return explore_images.explorer_of(folder)


@pytest.fixture(scope="session")
def server(explored):
    """A server that runs."""
    from bitclass.explore import PageServer

    with PageServer(explored[0]) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()
