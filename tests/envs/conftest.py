import numpy as np
import pytest


@pytest.fixture
def frames_of():
    """Read the metadata and the frames of an MP4 film."""
    ffmpeg = pytest.importorskip("imageio_ffmpeg")

    def read(path):
        reader = ffmpeg.read_frames(str(path))
        about = next(reader)
        width, height = about["size"]
        return about, [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader]

    return read
