"""Main loop of the app's process: it answers until the other side has gone."""

import io
import os
import sys
from typing import IO, Any

import numpy as np

from .environment import Unfit, error_line
from .frames import read_frame, write_frame


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer one request after the other.

    Args:
        requests: stream of requests.
        replies: stream of answers.
    """
    app: Any = None
    python_option = ""
    while (frame := read_frame(requests)) is not None:
        request, payload = frame
        model = np.frombuffer(payload, np.float32)
        try:
            if request["do"] == "open":
                python_option = request["python_option"]
                from .clients import App  # here, so that a missing flwr is reported as an answer

                app = App(request)
                write_frame(replies, app.description(), app.initial().tobytes())
                continue
            place = (request["client"], request["round"], request["seed"])
            if request["do"] == "train":
                reported, local = app.train(*place, model, request["loss"])
                write_frame(replies, reported, local.tobytes())
            else:
                write_frame(replies, app.evaluate(*place, model, request["names"]))
        except Unfit as error:
            write_frame(replies, {"unfit": str(error)})
        except ImportError as error:
            advice = f"{python_option} must be the interpreter of the app's environment"
            write_frame(replies, {"unfit": f"{error}; {advice}"})
        except Exception as error:
            write_frame(replies, {"error": error_line(error)})


def main() -> None:
    """Use standard output for the frames, and redirect the app's prints to standard error."""
    replies = io.BufferedWriter(io.FileIO(os.dup(1), "wb"))
    # The app's prints would otherwise stand among the frames.
    os.dup2(2, 1)
    serve(sys.stdin.buffer, replies)
