"""Feature files that must be refused, with what must be said."""

import pytest

from bitclass.data import DataFileError, open_rows


def refused(paths, *words, **options):
    """Read everything; the error must be one line with the file's name and these words."""
    with pytest.raises(DataFileError) as caught:
        for _ in open_rows(paths, **options).batches(4):
            pass
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 900
    for word in words:
        assert word in message, message
    first = paths if not isinstance(paths, list) else paths[0]
    if "labels_file" not in options and not isinstance(paths, list):
        assert message.startswith(str(first)), message
    return message


def write(path, text):
    path.write_text(text)
    return path
