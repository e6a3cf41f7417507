"""The boards of Trainwarden."""

from boards import fleet, gpu, health, inference, night, run, workers
from boards.board import Board

BOARDS: tuple[Board, ...] = (
    run.BOARD,
    night.BOARD,
    gpu.BOARD,
    workers.BOARD,
    inference.BOARD,
    health.BOARD,
    fleet.BOARD,
)
