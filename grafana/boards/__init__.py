"""The boards of Trainwarden."""

from boards import fleet, gpu, health, inference, night, run, time_spent, training, workers
from boards.board import Board

BOARDS: tuple[Board, ...] = (
    run.BOARD,
    training.BOARD,
    night.BOARD,
    time_spent.BOARD,
    gpu.BOARD,
    workers.BOARD,
    inference.BOARD,
    health.BOARD,
    fleet.BOARD,
)
